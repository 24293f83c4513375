// What softmax and cross-entropy take of each row of logits.
#import rows

@group(0) @binding(0) var<storage, read> x: array<f32>; // (rows, COLUMNS)

// The row's maximum. To be called by all its invocations.
fn row_max(row: u32, lane: u32) -> f32 {
    var top = x[row * COLUMNS];
    for (var c = lane; c < COLUMNS; c += LANES) {
        top = max(top, x[row * COLUMNS + c]);
    }
    return reduce_max(lane, top);
}

// Σ exp(x - top) over the row. To be called by all its invocations.
fn row_sum(row: u32, lane: u32, top: f32) -> f32 {
    var sum = 0.0;
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_sum = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            part_sum += exp(x[row * COLUMNS + c] - top);
        }
        sum += part_sum;
    }
    return reduce_sum(lane, sum);
}
