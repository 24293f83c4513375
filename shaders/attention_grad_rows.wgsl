// For each query, its logsumexp and the sum of do ∘ o, side by side.
#import elementwise

@group(0) @binding(0) var<storage, read> o: array<f32>; // as O_B, O_H and O_T say
@group(0) @binding(1) var<storage, read> logsumexp: array<f32>; // (B, HEADS, QUERIES)
@group(0) @binding(2) var<storage, read> d_o: array<f32>; // like o
@group(0) @binding(3) var<storage, read_write> statistics: array<vec2<f32>>; // (B, HEADS, QUERIES)

fn element(i: u32) {
    let head = i / QUERIES;
    let at = head / HEADS * O_B + head % HEADS * O_H + i % QUERIES * O_T;
    var sum = 0.0;
    for (var d = 0u; d < WIDTH; d += 1u) {
        sum += o[at + d] * d_o[at + d];
    }
    statistics[i] = vec2<f32>(logsumexp[i], sum);
}
