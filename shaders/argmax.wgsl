// best = the position of the largest element along an axis, the first of several. An invocation takes a chunk of a line's
// elements; with PARTS, the winners of a line's chunks.
#import elementwise
#import nan

@group(0) @binding(0) var<storage, read> x: array<f32>; // (lines / INNER, EXTENT, INNER)
#ifdef PARTS
@group(0) @binding(1) var<storage, read> winners: array<u32>; // (chunk, lines)
@group(0) @binding(2) var<storage, read_write> best: array<u32>; // (lines)
#else
@group(0) @binding(1) var<storage, read_write> best: array<u32>; // (chunks, lines)
#endif

fn element(i: u32) {
    let line = i % sizes.lines;
    let start = line / INNER * (EXTENT * INNER) + line % INNER;
#ifdef PARTS
    var at = winners[line];
#else
    let first = i / sizes.lines * sizes.chunk;
    var at = first;
#endif
    var top = x[start + at * INNER];
#ifdef PARTS
    for (var k = 1u; k < sizes.chunk; k += 1u) {
        let position = winners[k * sizes.lines + line];
#else
    for (var position = first + 1u; position < min(first + sizes.chunk, EXTENT); position += 1u) {
#endif
        let value = x[start + position * INNER];
        if wins(value, top) {
            top = value;
            at = position;
        }
    }
    best[i] = at;
}
