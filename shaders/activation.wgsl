// y = f(x), elementwise.
#import elementwise
#import activation

@group(0) @binding(0) var<storage, read> x: array<f32>; // (count)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (count)

fn element(i: u32) {
    y[i] = activate(x[i]);
}
