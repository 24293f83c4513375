// For each id, where its segment of ids has it again, and whether it had it before.
#import elementwise

@group(0) @binding(0) var<storage, read> ids: array<u32>; // (ids)
@group(0) @binding(1) var<storage, read_write> links: array<vec2<u32>>; // (ids): next occurrence or their number; 1 if there was one

fn row_at(i: u32) -> u32 {
    return min(ids[i], ROWS - 1u);
}

fn element(i: u32) {
    let first = i / sizes.segment * sizes.segment;
    let row = row_at(i);
    var before = 0u;
    for (var other = first; other < i; other += 1u) {
        if row_at(other) == row {
            before = 1u;
            break;
        }
    }
    var next = sizes.ids;
    for (var other = i + 1u; other < min(first + sizes.segment, sizes.ids); other += 1u) {
        if row_at(other) == row {
            next = other;
            break;
        }
    }
    links[i] = vec2<u32>(next, before);
}
