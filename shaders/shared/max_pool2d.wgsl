// Which pixel wins a window of a maximum pool. Padding never does; a NaN does.
#import pool

@group(0) @binding(0) var<storage, read> x: array<f32>; // (PLANES, H, W)

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
