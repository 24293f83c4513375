// loss = sum of t (log Σ exp(x) - x) for each row of logits x, shifted by the row's maximum; t is what is wanted of a class,
// without SPREAD of the label's alone.
#import reduce
#import class_target

@group(0) @binding(0) var<storage, read> x: array<f32>; // (ROWS, COLUMNS)
#ifdef SOFT
@group(0) @binding(1) var<storage, read> targets: array<f32>; // (ROWS, COLUMNS)
#else
@group(0) @binding(1) var<storage, read> labels: array<u32>; // (ROWS)
#endif
@group(0) @binding(2) var<storage, read_write> loss: array<f32>; // (ROWS)
#ifdef WEIGHTED
@group(0) @binding(3) var<storage, read> class_weights: array<f32>; // (COLUMNS)
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
    let scale = log(sum);
    var value = 0.0;
#ifdef SPREAD
    for (var c = lane; c < COLUMNS; c += LANES) {
        value += class_target(row, c) * (scale - (x[base + c] - top));
    }
    value = reduce_sum(lane, value);
#else
    let label = min(labels[row], COLUMNS - 1u);
    value = class_target(row, label) * (scale - (x[base + label] - top));
#endif
    if lane == 0u {
        loss[row] = select(value, 0.0, ignored(row));
    }
}
