// y = (x - mean) / sqrt(variance + EPSILON) · weight + bias, mean and variance those of the channel in the sample's
// group.
#import elementwise

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count) = (samples, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read> statistics: array<f32>; // (groups, CHANNELS, 2): mean, variance
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (count)
#ifdef AFFINE
@group(0) @binding(3) var<storage, read> weight: array<f32>; // (CHANNELS)
@group(0) @binding(4) var<storage, read> bias: array<f32>; // (CHANNELS)
#endif

fn element(i: u32) {
    let channel = (i / SPAN) % CHANNELS;
    let row = 2u * (i / (SPAN * CHANNELS * GROUP) * CHANNELS + channel);
    let xhat = (x[i] - statistics[row]) / sqrt(statistics[row + 1u] + EPSILON);
#ifdef AFFINE
    y[i] = xhat * weight[channel] + bias[channel];
#else
    y[i] = xhat;
#endif
}
