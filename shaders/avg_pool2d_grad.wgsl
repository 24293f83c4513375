// dx = the sum of dy over the windows over a pixel, each divided as in the forward pass. Gathered: no atomics.
#import elementwise
#import pool

@group(0) @binding(0) var<storage, read> dy: array<f32>; // (PLANES, OH, OW)
@group(0) @binding(1) var<storage, read_write> dx: array<f32>; // (PLANES, H, W)

fn element(i: u32) {
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
