// In each segment of ids, the first occurrence of an id follows the links to the others and sums their rows of dy, in
// order.
#import elementwise
#import add

@group(0) @binding(0) var<storage, read> ids: array<u32>; // (ids)
@group(0) @binding(1) var<storage, read> dy: array<f32>; // (ids, COLUMNS)
@group(0) @binding(2) var<storage, read> links: array<vec2<u32>>; // (ids): next occurrence or their number; 1 if there was one
@group(0) @binding(3) var<storage, read_write> tables: array<f32>; // (segments, ROWS, COLUMNS)

// Terms that are summed on their own before they join the total: rounding grows with the number of additions in a row.
const BLOCK: u32 = 64u;

fn element(i: u32) {
    let first = i / COLUMNS;
    let column = i % COLUMNS;
    if links[first].y != 0u {
        return;
    }
    var total = 0.0;
    var sum = 0.0;
    var at = first;
    for (var term = 0u; term < sizes.segment; term += 1u) {
        if at >= sizes.ids {
            break;
        }
        sum += dy[at * COLUMNS + column];
        at = links[at].x;
        if term % BLOCK == BLOCK - 1u {
            total += sum;
            sum = 0.0;
        }
    }
    let at_table = (first / sizes.segment * ROWS + min(ids[first], ROWS - 1u)) * COLUMNS + column;
    tables[at_table] = added(tables[at_table], total + sum);
}
