// As many multiplications and additions as there can be (profile::ceilings): in registers alone, in eight chains that
// do not wait for one another. An invocation writes an element.
#import linear

@group(0) @binding(0) var<storage, read_write> y: array<f32>; // (workgroups · WG)

const A = vec4<f32>(0.5);
const B = vec4<f32>(1.0);

fn eight(x: vec4<f32>) -> vec4<f32> {
    let four = fma(fma(fma(fma(x, A, B), A, B), A, B), A, B);
    return fma(fma(fma(fma(four, A, B), A, B), A, B), A, B);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    var s = vec4<f32>(f32(i));
    var t = vec4<f32>(f32(i + 1u));
    for (var turn = 0u; turn < TURNS; turn += 1u) {
        s = eight(eight(s));
        t = eight(eight(t));
    }
    let sum = s + t;
    y[i] = sum.x + sum.y + sum.z + sum.w;
}
