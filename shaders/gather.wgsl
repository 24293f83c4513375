// y[.., j, ..] = x[.., index[.., j, ..], ..] along an axis.
#import elementwise
#import broadcast

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> index: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

fn element(i: u32) {
    let at = coordinates(i);
    let pick = min(index[position(at, vec4<u32>(I0, I1, I2, I3))], EXTENT - 1u);
    y[i] = x[position(at, vec4<u32>(X0, X1, X2, X3)) + pick * STRIDE];
}
