// tables = 0.
#import linear

@group(0) @binding(0) var<storage, read_write> tables: array<f32>; // (COUNT)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        tables[i] = 0.0;
    }
}
