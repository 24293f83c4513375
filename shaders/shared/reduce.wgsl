// Work on rows (op::rows): a workgroup a row, or with SERIAL an invocation a row. A kernel asks for its row and lane,
// leaves when the row is beyond ROWS, and walks the columns lane, lane + LANES, …
#import linear

#ifdef SERIAL
const LANES: u32 = 1u;

fn row_of(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
    return linear_group(group, groups) * WG + local;
}

fn lane_of(local: u32) -> u32 {
    return 0u;
}

fn reduce_sum(lane: u32, value: f32) -> f32 {
    return value;
}

fn reduce_max(lane: u32, value: f32) -> f32 {
    return value;
}
#else
const LANES: u32 = WG;

var<workgroup> reduction: array<f32, WG>;

fn row_of(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
    return linear_group(group, groups);
}

fn lane_of(local: u32) -> u32 {
    return local;
}

// The sum over the workgroup, by a tree, so in a fixed order. To be called by all its invocations.
fn reduce_sum(lane: u32, value: f32) -> f32 {
    reduction[lane] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if lane < half {
            reduction[lane] += reduction[lane + half];
        }
        workgroupBarrier();
    }
    let result = reduction[0];
    workgroupBarrier();
    return result;
}

// The maximum over the workgroup. To be called by all its invocations.
fn reduce_max(lane: u32, value: f32) -> f32 {
    reduction[lane] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if lane < half {
            reduction[lane] = max(reduction[lane], reduction[lane + half]);
        }
        workgroupBarrier();
    }
    let result = reduction[0];
    workgroupBarrier();
    return result;
}
#endif
