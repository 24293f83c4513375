// y = the box of x that starts at START; A0…A3 are x's strides along y's dimensions.
#import linear
#import broadcast

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i < COUNT {
        y[i] = x[START + position(coordinates(i), vec4<u32>(A0, A1, A2, A3))];
    }
}
