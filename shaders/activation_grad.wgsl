// dx = dy f'(v), elementwise; v is the activation's output with FROM_OUTPUT, else its input.
#import linear
#import activation

@group(0) @binding(0) var<storage, read> v: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (COUNT)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (COUNT)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        dx[i] = dy[i] * activate_grad(v[i]);
    }
}
