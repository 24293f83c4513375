// y = the table's row of each id.
#import elementwise

@group(0) @binding(0) var<storage, read> table: array<f32>; // (ROWS, COLUMNS)
@group(0) @binding(1) var<storage, read> ids: array<u32>; // (count / COLUMNS)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (count / COLUMNS, COLUMNS)

fn element(i: u32) {
    y[i] = table[min(ids[i / COLUMNS], ROWS - 1u) * COLUMNS + i % COLUMNS];
}
