// dx = the sum of dy over the windows whose maximum x is, the first one in row-major order. Gathered: an invocation
// finds the winner of every window over its pixel, so that nothing is added atomically.
#import linear
#import pool

@group(0) @binding(0) var<storage, read> x: array<f32>; // (PLANES, H, W)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (PLANES, OH, OW)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (PLANES, H, W)

// Position in its plane of a window's winner.
fn winner(plane: u32, window: vec2<u32>) -> u32 {
    let start = window_start(window);
    let first = max(start, vec2<i32>());
    var position = u32(first.x) * W + u32(first.y);
    var best = x[plane + position];
    for (var ky = 0u; ky < KH; ky += 1u) {
        for (var kx = 0u; kx < KW; kx += 1u) {
            let at = start + vec2<i32>(vec2<u32>(ky, kx));
            if inside(at) {
                let candidate = u32(at.x) * W + u32(at.y);
                let v = x[plane + candidate];
                if wins(v, best) {
                    best = v;
                    position = candidate;
                }
            }
        }
    }
    return position;
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT {
        return;
    }
    let plane = i / (H * W);
    let position = i % (H * W);
    let pixel = vec2<u32>(position / W, position % W);
    let first = first_window(pixel);
    let end = windows_end(pixel);
    var sum = 0.0;
    for (var oy = first.x; oy < end.x; oy += 1u) {
        for (var ox = first.y; ox < end.y; ox += 1u) {
            if winner(plane * (H * W), vec2<u32>(oy, ox)) == position {
                sum += dy[(plane * OH + oy) * OW + ox];
            }
        }
    }
    dx[i] = sum;
}
