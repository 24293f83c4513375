// Partial sums of the squared averaged gradient: each workgroup sums a chunk of a parameter, in a fixed order; none of
// the sums that are for running statistics, with RUNNING. One that is not finite makes its partial sum infinite.
#import workgroups
#import update
#import squares

@group(0) @binding(0) var<storage, read> gradient: array<f32>; // (count)
// First element and end of each chunk, (all, 2); then its sum as bits, (all). This bucket's are `chunks` from `first` on.
@group(0) @binding(1) var<storage, read_write> partials: array<u32>;

fn work(chunk: u32, local: u32) {
    let at = sizes.first + min(chunk, sizes.chunks - 1u);
    let start = partials[2u * at];
    let end = min(partials[2u * at + 1u], sizes.count);
    var sum = 0.0;
    var overflow = 0u;
    for (var i = start + local; i < end; i += WG) {
        let sample = gradient[i];
#ifdef RUNNING
#else
        let g = sample * update.inverse_weight;
        sum += g * g;
#endif
        overflow |= overflows(bitcast<u32>(sample));
    }
    add_up(local, sum, overflow);
    if local == 0u && chunk < sizes.chunks {
        partials[2u * sizes.all + at] = select(bitcast<u32>(sums[0]), EXPONENT, bad[0] != 0u);
    }
}
