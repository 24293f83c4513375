// y = x at another resolution.
#import elementwise
#import resample

@group(0) @binding(0) var<storage, read> x: array<f32>; // (PLANES, H, W)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (PLANES, OH, OW)

fn element(i: u32) {
    let plane = i / (OH * OW) * (H * W);
    let row = source(i / OW % OH, OH, H);
    let column = source(i % OW, OW, W);
    let upper = plane + row.first * W;
#ifdef BILINEAR
    let lower = plane + row.second * W;
    let above = mix(x[upper + column.first], x[upper + column.second], column.part);
    let below = mix(x[lower + column.first], x[lower + column.second], column.part);
    y[i] = mix(above, below, row.part);
#else
    y[i] = x[upper + column.first];
#endif
}
