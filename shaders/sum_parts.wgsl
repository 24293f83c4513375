// y = f(Σ parts + bias): ends what was summed in parts, in their order.
#import elementwise
#import activation
#import add

@group(0) @binding(0) var<storage, read> parts: array<f32>; // (parts, count)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (count / N, N)
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>; // (N)
#endif

// Parts that are summed on their own before they join the total: rounding grows with the number of additions in a row.
const BLOCK: u32 = 128u;

fn element(i: u32) {
    var total = 0.0;
    for (var block = 0u; block < sizes.parts; block += BLOCK) {
        var sum = 0.0;
        for (var part = block; part < min(block + BLOCK, sizes.parts); part += 1u) {
            sum += parts[part * sizes.count + i];
        }
        total += sum;
    }
#ifdef BIAS
    total += bias[i % N];
#endif
    y[i] = added(y[i], activate(total));
}
