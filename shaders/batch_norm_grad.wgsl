// dx = weight · (dy - mean dy - xhat · mean(dy xhat)) / deviation, the means over the channel in the sample's group. A
// row of padding is in no mean that its group's statistics are made of: dx = weight · dy / deviation.
#import elementwise
#import batch_norm

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count) = (samples, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read> statistics: array<f32>; // (groups, CHANNELS, 2): mean, variance
@group(0) @binding(2) var<storage, read> dy: array<f32>; // (count)
@group(0) @binding(3) var<storage, read> of_dy: array<f32>; // (groups, CHANNELS): Σ dy
@group(0) @binding(4) var<storage, read> of_both: array<f32>; // (groups, CHANNELS): Σ dy xhat
@group(0) @binding(5) var<storage, read_write> dx: array<f32>; // (count)
#ifdef AFFINE
@group(0) @binding(6) var<storage, read> weight: array<f32>; // (CHANNELS)
#endif

fn element(i: u32) {
    let channel = (i / SPAN) % CHANNELS;
    let sample = i / (SPAN * CHANNELS);
    let group = sample / GROUP;
    let row = group * CHANNELS + channel;
    var scale = 1.0 / sqrt(statistics[2u * row + 1u] + EPSILON);
    let xhat = (x[i] - statistics[2u * row]) * scale;
    var v = dy[i];
    if sample < step.valid {
        let n = f32(valid_samples(group) * SPAN);
        v -= (of_dy[row] + xhat * of_both[row]) / n;
    }
#ifdef AFFINE
    scale *= weight[channel];
#endif
    dx[i] = scale * v;
}
