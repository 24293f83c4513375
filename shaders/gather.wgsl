// y[.., j, ..] = x[.., index[.., j, ..], ..] along an axis.
#import linear
#import broadcast

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> index: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        let at = coordinates(i);
        let pick = min(index[position(at, vec4<u32>(I0, I1, I2, I3))], EXTENT - 1u);
        y[i] = x[position(at, vec4<u32>(X0, X1, X2, X3)) + pick * STRIDE];
    }
}
