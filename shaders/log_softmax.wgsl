// y = x - max x - log Σ exp(x - max x) for each row.
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
        sum += exp(x[base + c] - top);
    }
    let shift = log(reduce_sum(lane, sum));
    for (var c = lane; c < COLUMNS; c += LANES) {
        y[base + c] = (x[base + c] - top) - shift;
    }
}
