// n, Σ(x - r) and Σ(x - mean)², mean that over all groups, of each channel, from each group's mean and variance. The
// last in a pass of its own: far from r, the difference between Σ(x - r)² and n (mean - r)² would be lost in rounding.
#import rows
#import batch_norm

@group(0) @binding(0) var<storage, read> statistics: array<f32>; // (groups, CHANNELS, 2): mean, variance
@group(0) @binding(1) var<storage, read> running_mean: array<f32>; // (CHANNELS): r
@group(0) @binding(2) var<storage, read_write> n: array<f32>; // (1)
@group(0) @binding(3) var<storage, read_write> shifts: array<f32>; // (CHANNELS)
@group(0) @binding(4) var<storage, read_write> squares: array<f32>; // (CHANNELS)

fn along_row(channel: u32, lane: u32) {
    var samples = 0.0;
    var sum = 0.0;
    for (var group = lane; group < sizes.groups; group += LANES) {
        let row = 2u * (group * CHANNELS + channel);
        let of_group = f32(valid_samples(group));
        samples += of_group;
        sum += of_group * (statistics[row] - running_mean[channel]);
    }
    samples = reduce_sum(lane, samples);
    sum = reduce_sum(lane, sum);
    let shift = sum / samples;
    var square = 0.0;
    for (var group = lane; group < sizes.groups; group += LANES) {
        let row = 2u * (group * CHANNELS + channel);
        let d = (statistics[row] - running_mean[channel]) - shift;
        square += f32(valid_samples(group)) * (statistics[row + 1u] + d * d);
    }
    square = reduce_sum(lane, square);
    if lane == 0u {
        if channel == 0u {
            n[0] = samples * f32(SPAN);
        }
        shifts[channel] = sum * f32(SPAN);
        squares[channel] = square * f32(SPAN);
    }
}
