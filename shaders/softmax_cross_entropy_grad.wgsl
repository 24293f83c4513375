// dx = dloss (softmax(x) Σ t - t) for each row of logits; t is what is wanted of a class, without SPREAD of the label's
// alone.
#import softmax
#import class_target

@group(0) @binding(2) var<storage, read> dloss: array<f32>; // (rows)
@group(0) @binding(3) var<storage, read_write> dx: array<f32>; // (rows, COLUMNS)

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    let top = row_max(row, lane);
    let sum = row_sum(row, lane, top);
#ifdef SPREAD
    var total = 0.0;
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_total = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            part_total += class_target(row, c);
        }
        total += part_total;
    }
    total = reduce_sum(lane, total);
#else
    let total = class_target(row, min(labels[row], COLUMNS - 1u));
#endif
    let scale = dloss[row];
    let nothing = ignored(row);
    for (var c = lane; c < COLUMNS; c += LANES) {
        let value = scale * (exp(x[base + c] - top) / sum * total - class_target(row, c));
        dx[base + c] = select(value, 0.0, nothing);
    }
}
