// y = x (x0, X1, X2, X3) with VALUE around it, P0…P3 elements in front of each dimension.
#import elementwise
#import broadcast

@group(0) @binding(0) var<storage, read> x: array<f32>; // (x0, X1, X2, X3)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

fn element(i: u32) {
    // In front of x this wraps around, to far beyond it.
    let at = coordinates(i) - vec4<u32>(P0, P1, P2, P3);
    let inside = all(at < vec4<u32>(sizes.x0, X1, X2, X3));
    let source = position(at, vec4<u32>(X1 * X2 * X3, X2 * X3, X3, 1u));
    y[i] = select(VALUE, x[select(0u, source, inside)], inside);
}
