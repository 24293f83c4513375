// x as a convolution and its weight's gradient read it.

@group(0) @binding(0) var<storage, read> x: array<f32>; // (n, GROUPS CG, H, W)

const BLOCKS = (OG + TILE - 1u) / TILE; // of channels, in a group

// x at a column of a row, 0 outside. `row` is negative where the whole row is padding.
fn at(row: i32, column: i32) -> f32 {
#ifdef PADDED
    let inside = row >= 0 && u32(column) < W;
    return select(0.0, x[select(0, row + column, inside)], inside);
#else
    // Only pixels and taps right of the last one, which are computed but not stored, leave the row.
    return x[row + min(column, i32(W) - 1)];
#endif
}
