// y = the maximum of x over sliding windows, and where in its plane it was. Padding never wins; a NaN does.
#import elementwise
#import pool

@group(0) @binding(0) var<storage, read> x: array<f32>; // (planes, H, W)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (planes, OH, OW)
@group(0) @binding(2) var<storage, read_write> winners: array<u32>; // (planes, OH, OW)

// Position in its plane, which begins at `plane`, of a window's winner: the first one in row-major order.
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

fn element(i: u32) {
    let plane = i / (OH * OW) * (H * W);
    let position = winner(plane, vec2<u32>(i / OW % OH, i % OW));
    y[i] = x[plane + position];
    winners[i] = position;
}
