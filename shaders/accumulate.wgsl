// sum += x, elementwise: gradients and statistics over the micro-batches of a step.
#import linear

@group(0) @binding(0) var<storage, read> x: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read_write> sum: array<f32>; // (COUNT)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        sum[i] += x[i];
    }
}
