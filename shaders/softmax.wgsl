// y = exp(x - max x) / Σ exp(x - max x) for each row; with LOG its logarithm, x - max x - log Σ exp(x - max x).
#import reduce

@group(0) @binding(0) var<storage, read> x: array<f32>; // (ROWS, COLUMNS)
@group(0) @binding(1) var<storage, read_write> y: array<f32>; // (ROWS, COLUMNS)

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row = row_of(group, groups, local);
    let lane = lane_of(local);
    if row >= ROWS {
        return;
    }
    let base = row * COLUMNS;
    var top = x[base];
    for (var c = lane; c < COLUMNS; c += LANES) {
        top = max(top, x[base + c]);
    }
    top = reduce_max(lane, top);
    var sum = 0.0;
    for (var c = lane; c < COLUMNS; c += LANES) {
        let e = exp(x[base + c] - top);
#ifdef LOG
#else
        y[base + c] = e;
#endif
        sum += e;
    }
    sum = reduce_sum(lane, sum);
#ifdef LOG
    let shift = log(sum);
#endif
    for (var c = lane; c < COLUMNS; c += LANES) {
#ifdef LOG
        y[base + c] = (x[base + c] - top) - shift;
#else
        y[base + c] /= sum;
#endif
    }
}
