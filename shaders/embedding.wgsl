// y = the table's row of each id.
#import linear

@group(0) @binding(0) var<storage, read> table: array<f32>; // (ROWS, COLUMNS)
@group(0) @binding(1) var<storage, read> ids: array<u32>; // (COUNT / COLUMNS)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (COUNT / COLUMNS, COLUMNS)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        y[i] = table[min(ids[i / COLUMNS], ROWS - 1u) * COLUMNS + i % COLUMNS];
    }
}
