// Writes x into y, PART long along an axis of EXTENT, at START.
#import linear

@group(0) @binding(0) var<storage, read> x: array<f32>; // (COUNT / (PART INNER), PART, INNER)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (COUNT / (PART INNER), EXTENT, INNER)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        let outer = i / (PART * INNER);
        y[(outer * EXTENT + START) * INNER + i % (PART * INNER)] = x[i];
    }
}
