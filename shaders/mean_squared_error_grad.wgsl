// da = dloss · 2 (a - b) / COLUMNS.
#import elementwise

@group(0) @binding(0) var<storage, read> a: array<f32>; // (count / COLUMNS, COLUMNS)
@group(0) @binding(1) var<storage, read> b: array<f32>; // (count / COLUMNS, COLUMNS)
@group(0) @binding(2) var<storage, read> dloss: array<f32>; // (count / COLUMNS)
@group(0) @binding(3) var<storage, read_write> da: array<f32>; // (count / COLUMNS, COLUMNS)

fn element(i: u32) {
    da[i] = dloss[i / COLUMNS] * (2.0 / f32(COLUMNS)) * (a[i] - b[i]);
}
