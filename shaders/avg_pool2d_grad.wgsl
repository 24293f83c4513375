// dx = the sum of dy over the windows over a pixel, each divided as in the forward pass. Gathered: no atomics.
#import linear
#import pool

@group(0) @binding(0) var<storage, read> dy: array<f32>; // (PLANES, OH, OW)
@group(0) @binding(1) var<storage, read_write> dx: array<f32>; // (PLANES, H, W)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT {
        return;
    }
    let plane = i / (H * W);
    let pixel = vec2<u32>(i / W % H, i % W);
    let first = first_window(pixel);
    let end = windows_end(pixel);
    var sum = 0.0;
    for (var oy = first.x; oy < end.x; oy += 1u) {
        for (var ox = first.y; ox < end.y; ox += 1u) {
            sum += dy[(plane * OH + oy) * OW + ox] / divisor(vec2<u32>(oy, ox));
        }
    }
    dx[i] = sum;
}
