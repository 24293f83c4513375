// y = f(Σ parts + bias): ends a product whose K was cut into PARTS, in their order.
#import elementwise
#import activation

@group(0) @binding(0) var<storage, read> parts: array<f32>; // (PARTS, COUNT)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (COUNT / N, N)
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>; // (N)
#endif

fn element(i: u32) {
    var sum = 0.0;
    for (var part = 0u; part < PARTS; part += 1u) {
        sum += parts[part * COUNT + i];
    }
#ifdef BIAS
    sum += bias[i % N];
#endif
    y[i] = activate(sum);
}
