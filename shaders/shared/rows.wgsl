// Work on rows (op::rows): a workgroup a row, or with SERIAL an invocation a row. The kernel's `along_row` gets a row
// and the invocation's lane, and walks the columns lane, lane + LANES, … Sums go by blocks of BLOCK columns, which are
// summed on their own before they join the total: rounding grows with the number of additions in a row.
#import linear

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
#ifdef SERIAL
    let row = linear_group(group, groups) * WG + local;
    let lane = 0u;
#else
    let row = linear_group(group, groups);
    let lane = local;
#endif
    if row < sizes.rows {
        along_row(row, lane);
    }
}

#ifdef SERIAL
const LANES: u32 = 1u;

fn reduce_sum(lane: u32, value: f32) -> f32 {
    return value;
}

fn reduce_max(lane: u32, value: f32) -> f32 {
    return value;
}
#else
const LANES: u32 = WG;

var<workgroup> reduction: array<f32, WG>;

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

const BLOCK: u32 = 32u * LANES;
