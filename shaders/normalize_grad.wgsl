// dx = (g - mean g - xhat · mean(g xhat)) / deviation along rows, g = dy · weight; without mean g for RMS.
#import rows

@group(0) @binding(0) var<storage, read> x: array<f32>; // (rows, COLUMNS) = (N, GROUPS, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read> statistics: array<f32>; // (rows, 2): mean, 1 / deviation
@group(0) @binding(2) var<storage, read> dy: array<f32>; // (rows, COLUMNS)
@group(0) @binding(3) var<storage, read_write> dx: array<f32>; // (rows, COLUMNS)
#ifdef WEIGHT
@group(0) @binding(4) var<storage, read> weight: array<f32>; // (GROUPS, CHANNELS)
#endif

fn g_at(row: u32, c: u32) -> f32 {
#ifdef WEIGHT
    return dy[row * COLUMNS + c] * weight[(row % GROUPS) * CHANNELS + c / SPAN];
#else
    return dy[row * COLUMNS + c];
#endif
}

fn along_row(row: u32, lane: u32) {
    let base = row * COLUMNS;
    let mean = statistics[2u * row];
    let scale = statistics[2u * row + 1u];
    var of_g = 0.0;
    var of_both = 0.0;
    for (var block = lane; block < COLUMNS; block += BLOCK) {
        var part_of_g = 0.0;
        var part_of_both = 0.0;
        for (var c = block; c < min(block + BLOCK, COLUMNS); c += LANES) {
            let g = g_at(row, c);
            part_of_g += g;
            part_of_both += g * ((x[base + c] - mean) * scale);
        }
        of_g += part_of_g;
        of_both += part_of_both;
    }
    of_both = reduce_sum(lane, of_both) / f32(COLUMNS);
#ifdef RMS
    of_g = 0.0;
#else
    of_g = reduce_sum(lane, of_g) / f32(COLUMNS);
#endif
    for (var c = lane; c < COLUMNS; c += LANES) {
        let xhat = (x[base + c] - mean) * scale;
        dx[base + c] = scale * (g_at(row, c) - of_g - xhat * of_both);
    }
}
