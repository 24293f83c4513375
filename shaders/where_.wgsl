// y = a where the condition is not 0, else b; broadcast.
#import elementwise
#import broadcast

@group(0) @binding(0) var<storage, read> condition: array<f32>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // (D0, D1, D2, D3)

fn element(i: u32) {
    let at = coordinates(i);
    if condition[position(at, vec4<u32>(C0, C1, C2, C3))] != 0.0 {
        y[i] = a[position(at, vec4<u32>(A0, A1, A2, A3))];
    } else {
        y[i] = b[position(at, vec4<u32>(B0, B1, B2, B3))];
    }
}
