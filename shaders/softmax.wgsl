// y = exp(x - max x) / Σ exp(x - max x) for each row; with LOG its logarithm, x - max x - log Σ exp(x - max x).
#import softmax

@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (rows, COLUMNS)

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    let top = row_max(row, lane);
#ifdef LOG
    let shift = log(row_sum(row, lane, top));
    for (var c = lane; c < COLUMNS; c += LANES) {
        y[base + c] = (x[base + c] - top) - shift;
    }
#else
    var sum = 0.0;
    for (var c = lane; c < COLUMNS; c += LANES) {
        let e = exp(x[base + c] - top);
        y[base + c] = e;
        sum += e;
    }
    sum = reduce_sum(lane, sum);
    for (var c = lane; c < COLUMNS; c += LANES) {
        y[base + c] /= sum;
    }
#endif
}
