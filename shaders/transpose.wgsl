// y = x with its dimensions permuted: A0…A3 are x's strides along y's dimensions.
#import elementwise
#import broadcast

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

fn element(i: u32) {
    y[i] = x[position(coordinates(i), vec4<u32>(A0, A1, A2, A3))];
}
