// y = (x - mean) / sqrt(variance + EPSILON) · weight + bias along rows; the variance in a pass of its own, from what is
// left after the mean is taken off.
#import rows

@group(0) @binding(0) var<storage, read> x: array<f32>; // (rows, COLUMNS) = (N, GROUPS, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (rows, COLUMNS)
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>; // (rows, 2): mean, 1 / deviation
#ifdef WEIGHT
@group(0) @binding(3) var<storage, read> weight: array<f32>; // (GROUPS, CHANNELS)
#endif
#ifdef BIAS
@group(0) @binding(4) var<storage, read> bias: array<f32>; // (GROUPS, CHANNELS)
#endif

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    var sum = 0.0;
#ifdef RMS
#else
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_sum = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            part_sum += x[base + c];
        }
        sum += part_sum;
    }
    sum = reduce_sum(lane, sum);
#endif
    let mean = sum / f32(COLUMNS);
    var squares = 0.0;
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_squares = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            let d = x[base + c] - mean;
            part_squares += d * d;
        }
        squares += part_squares;
    }
    squares = reduce_sum(lane, squares);
    let scale = 1.0 / sqrt(squares / f32(COLUMNS) + EPSILON);
    if lane == 0u {
        statistics[2u * row] = mean;
        statistics[2u * row + 1u] = scale;
    }
    for (var c = lane; c < COLUMNS; c += LANES) {
        var v = (x[base + c] - mean) * scale;
#ifdef WEIGHT
        let channel = (row % GROUPS) * CHANNELS + c / SPAN;
        v *= weight[channel];
#ifdef BIAS
        v += bias[channel];
#endif
#endif
        y[base + c] = v;
    }
}
