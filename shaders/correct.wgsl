// y = 1 where the row's largest logit, the first of several, is the label's.
#import rows

@group(0) @binding(0) var<storage, read> x: array<f32>; // (rows, COLUMNS)
@group(0) @binding(1) var<storage, read> labels: array<u32>; // (rows)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (rows)

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    let label = labels[row];
    let mine = x[base + min(label, COLUMNS - 1u)];
    // Another column beats the label's by more, or by as much if it comes first.
    var beaten = select(0.0, 1.0, label >= COLUMNS || !(mine == mine));
    for (var c = lane; c < COLUMNS; c += LANES) {
        let other = x[base + c];
        if other > mine || (other == mine && c < label) {
            beaten = 1.0;
        }
    }
#ifdef IGNORING
    if label == IGNORED {
        beaten = 1.0;
    }
#endif
    beaten = reduce_max(lane, beaten);
    if lane == 0u {
        y[row] = 1.0 - beaten;
    }
}
