// dx = y (dy - Σ y dy) for each row; y is softmax's output. With LOG y is log-softmax's, and dx = dy - exp(y) Σ dy.
#import rows

@group(0) @binding(0) var<storage, read> y: array<f32>; // (rows, COLUMNS)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (rows, COLUMNS)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (rows, COLUMNS)

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    var sum = 0.0;
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_sum = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
#ifdef LOG
            part_sum += dy[base + c];
#else
            part_sum += y[base + c] * dy[base + c];
#endif
        }
        sum += part_sum;
    }
    sum = reduce_sum(lane, sum);
    for (var c = lane; c < COLUMNS; c += LANES) {
#ifdef LOG
        dx[base + c] = dy[base + c] - exp(y[base + c]) * sum;
#else
        dx[base + c] = y[base + c] * (dy[base + c] - sum);
#endif
    }
}
