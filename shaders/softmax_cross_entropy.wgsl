// loss = sum of t (log Σ exp(x) - x) for each row of logits x, shifted by the row's maximum; t is what is wanted of a
// class, without SPREAD of the label's alone.
#import softmax
#import class_target

@group(0) @binding(2) var<storage, read_write> loss: array<f32>; // (rows)

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    let top = row_max(row, lane);
    let scale = log(row_sum(row, lane, top));
    var value = 0.0;
#ifdef SPREAD
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_value = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            part_value += class_target(row, c) * (scale - (x[base + c] - top));
        }
        value += part_value;
    }
    value = reduce_sum(lane, value);
#else
    let label = min(labels[row], COLUMNS - 1u);
    value = class_target(row, label) * (scale - (x[base + label] - top));
#endif
    if lane == 0u {
        loss[row] = select(value, 0.0, ignored(row));
    }
}
