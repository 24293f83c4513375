// dx = the sum of dy over the windows over a pixel, each divided by its pixels. Gathered: no atomics.
#import elementwise

@group(0) @binding(0) var<storage, read> dy: array<f32>; // (PLANES, OH, OW)
@group(0) @binding(1) var<storage, read_write> dx: array<f32>; // (PLANES, H, W)

// Pixels that a window covers along an axis.
fn covered(window: u32, windows: u32, extent: u32) -> f32 {
    return f32(((window + 1u) * extent + windows - 1u) / windows - window * extent / windows);
}

fn element(i: u32) {
    let plane = i / (H * W) * (OH * OW);
    let iy = i / W % H;
    let ix = i % W;
    // Pixel i lies in the windows o with ⌊o E / O⌋ <= i < ⌈(o + 1) E / O⌉: from ⌊i O / E⌋ to below ⌈(i + 1) O / E⌉.
    let top = iy * OH / H;
    let bottom = ((iy + 1u) * OH + H - 1u) / H;
    let left = ix * OW / W;
    let right = ((ix + 1u) * OW + W - 1u) / W;
    var sum = 0.0;
    for (var oy = top; oy < bottom; oy += 1u) {
        for (var ox = left; ox < right; ox += 1u) {
            sum += dy[plane + oy * OW + ox] / (covered(oy, OH, H) * covered(ox, OW, W));
        }
    }
    dx[i] = sum;
}
