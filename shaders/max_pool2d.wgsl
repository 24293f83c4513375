// y = the maximum of x over sliding windows.
#import elementwise
#import max_pool2d

@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (PLANES, OH, OW)

fn element(i: u32) {
    let plane = i / (OH * OW) * (H * W);
    y[i] = x[plane + winner(plane, vec2<u32>(i / OW % OH, i % OW))];
}
