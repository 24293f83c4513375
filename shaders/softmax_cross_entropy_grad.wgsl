// dx = dloss (softmax(x) Σ t - t) for each row of logits; t is what is wanted of a class, without SPREAD of the label's alone.
#import reduce
#import class_target

@group(0) @binding(0) var<storage, read> x: array<f32>; // (ROWS, COLUMNS)
#ifdef SOFT
@group(0) @binding(1) var<storage, read> targets: array<f32>; // (ROWS, COLUMNS)
#else
@group(0) @binding(1) var<storage, read> labels: array<u32>; // (ROWS)
#endif
@group(0) @binding(2) var<storage, read> dloss: array<f32>; // (ROWS)
@group(0) @binding(3) var<storage, read_write> dx: array<f32>; // (ROWS, COLUMNS)
#ifdef WEIGHTED
@group(0) @binding(4) var<storage, read> class_weights: array<f32>; // (COLUMNS)
#endif

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
    sum = reduce_sum(lane, sum);
#ifdef SPREAD
    var total = 0.0;
    for (var c = lane; c < COLUMNS; c += LANES) {
        total += class_target(row, c);
    }
    total = reduce_sum(lane, total);
#else
    let total = class_target(row, min(labels[row], COLUMNS - 1u));
#endif
    let scale = dloss[row];
    let nothing = ignored(row);
    for (var c = lane; c < COLUMNS; c += LANES) {
        let value = scale * (exp(x[base + c] - top) / sum * total - class_target(row, c));
        dx[base + c] = select(value, 0.0, nothing);
    }
}
