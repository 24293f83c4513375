// y = sums of x over some of its dimensions. One invocation an output element, terms in row-major order.
#import linear
#import broadcast

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT {
        return;
    }
    let base = position(coordinates(i), vec4<u32>(K0, K1, K2, K3));
    var sum = 0.0;
    for (var term = 0u; term < TERMS; term += 1u) {
        let outer = term / R3;
        let at = vec4<u32>(outer / (R1 * R2), (outer / R2) % R1, outer % R2, term % R3);
        sum += x[base + position(at, vec4<u32>(S0, S1, S2, S3))];
    }
    y[i] = sum;
}
