// y = the means of x over OH × OW windows that cover it.
#import elementwise

@group(0) @binding(0) var<storage, read> x: array<f32>; // (PLANES, H, W)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (PLANES, OH, OW)

fn element(i: u32) {
    let plane = i / (OH * OW) * (H * W);
    let row = i / OW % OH;
    let column = i % OW;
    let top = row * H / OH;
    let bottom = ((row + 1u) * H + OH - 1u) / OH;
    let left = column * W / OW;
    let right = ((column + 1u) * W + OW - 1u) / OW;
    var sum = 0.0;
    for (var iy = top; iy < bottom; iy += 1u) {
        for (var ix = left; ix < right; ix += 1u) {
            sum += x[plane + iy * W + ix];
        }
    }
    y[i] = sum / f32((bottom - top) * (right - left));
}
