// y = Σ values · weights, by one workgroup: each invocation sums every WG-th term, then a tree adds those sums.
#import rows
#import add

@group(0) @binding(0) var<storage, read> values: array<f32>; // (terms)
@group(0) @binding(1) var<storage, read> weights: array<f32>; // (terms)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (1)

fn along_row(row: u32, lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < sizes.terms; i += LANES) {
        // Padding has weight 0 and may hold infinities.
        if weights[i] != 0.0 {
            sum += values[i] * weights[i];
        }
    }
    sum = reduce_sum(lane, sum);
    if lane == 0u {
        y[row] = added(y[row], sum);
    }
}
