// Mean and variance of each channel in each group; the variance in a pass of its own, from what is left after the mean
// is taken off. With PARTS > 1, of PART elements each: mean and Σ(x − mean)², for batch_norm_merge to merge.
#import rows
#import batch_norm

@group(0) @binding(0) var<storage, read> x: array<f32>; // (samples, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read_write> statistics: array<f32>; // (PARTS, groups, CHANNELS, 2)

fn along_row(row: u32, lane: u32) {
    let channel = row % CHANNELS;
    let group = (row / CHANNELS) % sizes.groups;
    let total = valid_samples(group) * SPAN;
    let first = min(row / (CHANNELS * sizes.groups) * PART, total);
    let end = min(first + PART, total);
    let count = f32(max(end - first, 1u));
    var sum = 0.0;
    for (var block = first + lane; block < end; block += BLOCK) {
        var part_sum = 0.0;
        for (var e = block; e < min(block + BLOCK, end); e += LANES) {
            part_sum += x[position(group, channel, e)];
        }
        sum += part_sum;
    }
    let mean = reduce_sum(lane, sum) / count;
    var squares = 0.0;
    for (var block = first + lane; block < end; block += BLOCK) {
        var part_squares = 0.0;
        for (var e = block; e < min(block + BLOCK, end); e += LANES) {
            let d = x[position(group, channel, e)] - mean;
            part_squares += d * d;
        }
        squares += part_squares;
    }
    squares = reduce_sum(lane, squares);
    if lane == 0u {
        statistics[2u * row] = mean;
#ifdef PARTIAL
        statistics[2u * row + 1u] = squares;
#else
        statistics[2u * row + 1u] = select(squares / count, 1.0, total == 0u);
#endif
    }
}
