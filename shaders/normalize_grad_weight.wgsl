// dweight = Σ dy (x - mean) / deviation and dbias = Σ dy for each channel. An invocation sums a chunk of a channel's
// terms, in order; where there are several, the outputs hold that many such sums of each channel, for sum_to to add.
#import elementwise

@group(0) @binding(0) var<storage, read> x: array<f32>; // (N, GROUPS, CHANNELS, SPAN)
@group(0) @binding(1) var<storage, read> statistics: array<f32>; // (N, GROUPS, 2): mean, 1 / deviation
@group(0) @binding(2) var<storage, read> dy: array<f32>; // (N, GROUPS, CHANNELS, SPAN)
@group(0) @binding(3) var<storage, read_write> dweight: array<f32>; // (chunks, GROUPS, CHANNELS)
#ifdef BIAS
@group(0) @binding(4) var<storage, read_write> dbias: array<f32>; // (chunks, GROUPS, CHANNELS)
#endif

// Terms that are summed on their own before they join the total: rounding grows with the number of additions in a row.
const BLOCK: u32 = 64u;
const WEIGHTS: u32 = GROUPS * CHANNELS;

fn element(i: u32) {
    let channel = i % WEIGHTS;
    let first = (i / WEIGHTS) * sizes.chunk;
    let end = min(first + sizes.chunk, sizes.terms);
    var total = vec2<f32>();
    for (var block = first; block < end; block += BLOCK) {
        var sum = vec2<f32>();
        for (var term = block; term < min(block + BLOCK, end); term += 1u) {
            let sample = term / SPAN;
            let at = (sample * WEIGHTS + channel) * SPAN + term % SPAN;
            let row = 2u * (sample * GROUPS + channel / CHANNELS);
            let v = dy[at];
            sum += vec2<f32>(v * ((x[at] - statistics[row]) * statistics[row + 1u]), v);
        }
        total += sum;
    }
    dweight[i] = total.x;
#ifdef BIAS
    dbias[i] = total.y;
#endif
}
