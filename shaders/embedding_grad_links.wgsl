// For each id, where its segment of ids has it again, and whether it had it before.
#import linear

@group(0) @binding(0) var<storage, read> ids: array<u32>; // (IDS)
@group(0) @binding(1) var<storage, read_write> links: array<vec2<u32>>; // (IDS): next occurrence or IDS; 1 if there was one

fn row_at(i: u32) -> u32 {
    return min(ids[i], ROWS - 1u);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= IDS {
        return;
    }
    let first = i / SEGMENT * SEGMENT;
    let row = row_at(i);
    var before = 0u;
    for (var other = first; other < i; other += 1u) {
        if row_at(other) == row {
            before = 1u;
            break;
        }
    }
    var next = IDS;
    for (var other = i + 1u; other < min(first + SEGMENT, IDS); other += 1u) {
        if row_at(other) == row {
            next = other;
            break;
        }
    }
    links[i] = vec2<u32>(next, before);
}
