// y = sums of x over some of its dimensions. An invocation sums a chunk of the terms of a result, in row-major order;
// where there are several chunks, y holds that many such sums of each result, for another launch to add.
#import elementwise
#import broadcast
#import add

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (chunks, results)

// Terms that are summed on their own before they join the total: rounding grows with the number of additions in a row.
const BLOCK: u32 = 128u;

fn element(i: u32) {
    let base = position(coordinates(i % sizes.results), vec4<u32>(K0, K1, K2, K3));
    let first = (i / sizes.results) * sizes.chunk;
    let end = min(first + sizes.chunk, sizes.terms);
    var total = 0.0;
    for (var block = first; block < end; block += BLOCK) {
        var sum = 0.0;
        for (var term = block; term < min(block + BLOCK, end); term += 1u) {
            let outer = term / R3;
            let at = vec4<u32>(outer / (R1 * R2), (outer / R2) % R1, outer % R2, term % R3);
            sum += x[base + position(at, vec4<u32>(S0, S1, S2, S3))];
        }
        total += sum;
    }
    y[i] = added(y[i], total);
}
