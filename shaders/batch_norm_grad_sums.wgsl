// Σ dy and Σ dy (x - mean) / deviation of each channel in each group. With PARTS > 1, of PART elements each, for sum_to
// to add.
#import rows
#import batch_norm

@group(0) @binding(0) var<storage, read> x: array<f32>; // (samples, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read> statistics: array<f32>; // (groups, CHANNELS, 2): mean, variance
@group(0) @binding(2) var<storage, read> dy: array<f32>; // (samples, CHANNELS, SPAN)
@group(0) @binding(3) var<storage, read_write> of_dy: array<f32>; // (PARTS, groups, CHANNELS)
@group(0) @binding(4) var<storage, read_write> of_both: array<f32>; // (PARTS, groups, CHANNELS)

fn along_row(row: u32, lane: u32) {
    let channel = row % CHANNELS;
    let group = (row / CHANNELS) % sizes.groups;
    // Padding is among them: the cotangents of its rows are 0.
    let total = min(sizes.samples - group * GROUP, GROUP) * SPAN;
    let first = row / (CHANNELS * sizes.groups) * PART;
    let end = min(first + PART, total);
    let mean = statistics[2u * (group * CHANNELS + channel)];
    let scale = 1.0 / sqrt(statistics[2u * (group * CHANNELS + channel) + 1u] + EPSILON);
    var sum = 0.0;
    var both = 0.0;
    for (var block = first + lane; block < end; block += BLOCK) {
        var part_sum = 0.0;
        var part_both = 0.0;
        for (var e = block; e < min(block + BLOCK, end); e += LANES) {
            let at = position(group, channel, e);
            part_sum += dy[at];
            part_both += dy[at] * ((x[at] - mean) * scale);
        }
        sum += part_sum;
        both += part_both;
    }
    sum = reduce_sum(lane, sum);
    both = reduce_sum(lane, both);
    if lane == 0u {
        of_dy[row] = sum;
        of_both[row] = both;
    }
}
