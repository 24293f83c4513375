// y = the mean of x over sliding windows.
#import elementwise
#import pool

@group(0) @binding(0) var<storage, read> x: array<f32>; // (PLANES, H, W)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (PLANES, OH, OW)

fn element(i: u32) {
    let plane = i / (OH * OW) * (H * W);
    let window = vec2<u32>(i / OW % OH, i % OW);
    let start = window_start(window);
    var sum = 0.0;
    for (var ky = 0u; ky < KH; ky += 1u) {
        for (var kx = 0u; kx < KW; kx += 1u) {
            let at = start + vec2<i32>(vec2<u32>(ky, kx));
            if inside(at) {
                sum += x[plane + u32(at.x) * W + u32(at.y)];
            }
        }
    }
    y[i] = sum / divisor(window);
}
