// The second half of LAMB (You et al., 2020), after lamb_norms: each workgroup sums the partial sums, all in the same
// order, and updates CHUNK elements. Nothing changes when the gradient was not finite.
#import lamb

@group(0) @binding(0) var<storage, read_write> parameter: array<f32>; // (count)
@group(0) @binding(1) var<storage, read> outcome: Norm;
@group(0) @binding(2) var<storage, read> exp_avg: array<f32>; // (count)
@group(0) @binding(3) var<storage, read> exp_avg_sq: array<f32>; // (count)
@group(0) @binding(4) var<storage, read> squares: array<vec2<f32>>; // (chunks), of weights and direction

fn work(chunk: u32, local: u32) {
    var sum = vec2<f32>(0.0);
    for (var i = local; i < sizes.chunks; i += WG) {
        sum += squares[i];
    }
    add_up(local, sum);
    workgroupBarrier();
    let norms = sqrt(sums[0]);
    var ratio = 1.0;
    if norms.x > 0.0 && norms.y > 0.0 {
        ratio = clamp(norms.x, LOW, HIGH) / norms.y;
    }
    let rate = update.learning_rate * LR_SCALE * ratio;
    let start = chunk * CHUNK;
    let end = end_of(start, outcome.applied);
    for (var i = start + local; i < end; i += WG) {
        let w = parameter[i];
        parameter[i] = w - rate * direction(w, exp_avg[i], exp_avg_sq[i]);
    }
}
