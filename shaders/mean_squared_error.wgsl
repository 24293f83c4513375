// loss = the mean of (a - b)² for each row.
#import rows

@group(0) @binding(0) var<storage, read> a: array<f32>; // (rows, COLUMNS)
@group(0) @binding(1) var<storage, read> b: array<f32>; // (rows, COLUMNS)
@group(0) @binding(2) var<storage, read_write> loss: array<f32>; // (rows)

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    var sum = 0.0;
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_sum = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            let d = a[base + c] - b[base + c];
            part_sum += d * d;
        }
        sum += part_sum;
    }
    sum = reduce_sum(lane, sum);
    if lane == 0u {
        loss[row] = sum / f32(COLUMNS);
    }
}
