// dx = the sum of dy over the windows whose maximum x is, the first one in row-major order. Gathered: an invocation
// finds the winner of every window over its pixel, so that nothing is added atomically.
#import elementwise
#import max_pool2d

@group(0) @binding(1) var<storage, read> dy: array<f32>; // (PLANES, OH, OW)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (PLANES, H, W)

fn element(i: u32) {
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
