// dx = the sum of dy over the windows whose winner a pixel is. Gathered: an invocation looks at every window over its
// pixel, so that nothing is added atomically.
#import elementwise
#import pool

@group(0) @binding(0) var<storage, read> winners: array<u32>; // (planes, OH, OW): positions in their plane
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (planes, OH, OW)
@group(0) @binding(2) var<storage, read_write> dx: array<f32>; // (planes, H, W)

fn element(i: u32) {
    let plane = i / (H * W);
    let position = i % (H * W);
    let pixel = vec2<u32>(position / W, position % W);
    let first = first_window(pixel);
    let end = windows_end(pixel);
    var sum = 0.0;
    for (var oy = first.x; oy < end.x; oy += 1u) {
        for (var ox = first.y; ox < end.y; ox += 1u) {
            let window = (plane * OH + oy) * OW + ox;
            if winners[window] == position {
                sum += dy[window];
            }
        }
    }
    dx[i] = sum;
}
