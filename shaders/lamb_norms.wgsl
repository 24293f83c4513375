// The first half of LAMB (You et al., 2020): moves a parameter's moments on, and sums the squares of its weights and of
// their direction. Each workgroup sums CHUNK elements, in a fixed order. Nothing changes when the gradient was not
// finite.
#import lamb

@group(0) @binding(0) var<storage, read> parameter: array<f32>; // (count)
@group(0) @binding(1) var<storage, read> gradient: array<f32>; // (count), sums
@group(0) @binding(2) var<storage, read> outcome: Norm;
@group(0) @binding(3) var<storage, read_write> exp_avg: array<f32>; // (count)
@group(0) @binding(4) var<storage, read_write> exp_avg_sq: array<f32>; // (count)
@group(0) @binding(5) var<storage, read_write> squares: array<vec2<f32>>; // (chunks), of weights and direction

fn work(chunk: u32, local: u32) {
    let start = chunk * CHUNK;
    let end = end_of(start, outcome.applied);
    var sum = vec2<f32>(0.0);
    for (var i = start + local; i < end; i += WG) {
        let w = parameter[i];
        let g = gradient[i] * outcome.scale;
        let m = BETA1 * exp_avg[i] + (1.0 - BETA1) * g;
        let v = BETA2 * exp_avg_sq[i] + (1.0 - BETA2) * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        let d = direction(w, m, v);
        sum += vec2<f32>(w * w, d * d);
    }
    add_up(local, sum);
    if local == 0u && chunk < sizes.chunks {
        squares[chunk] = sums[0];
    }
}
