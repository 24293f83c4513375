// Partial sums of the squared averaged gradient: each workgroup sums a chunk of a parameter, in a fixed order; none of the sums
// that are for running statistics, with RUNNING. One that is not finite makes its partial sum infinite (tested on the bits: a
// compiler may assume that floats are finite).
#import linear
#import update

@group(0) @binding(0) var<storage, read> gradient: array<f32>; // (COUNT)
// First element and end of each chunk, (ALL, 2); then its sum as bits, (ALL). This bucket's are CHUNKS from FIRST on.
@group(0) @binding(1) var<storage, read_write> partials: array<u32>;

var<workgroup> sums: array<f32, WG>;
var<workgroup> bad: array<u32, WG>;

const EXPONENT = 0x7f800000u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let chunk = linear_group(group, groups);
    let at = FIRST + min(chunk, CHUNKS - 1u);
    let start = partials[2u * at];
    let end = min(partials[2u * at + 1u], COUNT);
    var sum = 0.0;
    var overflow = 0u;
    for (var i = start + local; i < end; i += WG) {
        let sample = gradient[i];
#ifdef RUNNING
#else
        let g = sample * update.inverse_weight;
        sum += g * g;
#endif
        overflow |= u32((bitcast<u32>(sample) & EXPONENT) == EXPONENT);
    }
    sums[local] = sum;
    bad[local] = overflow;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            sums[local] += sums[local + half];
            bad[local] |= bad[local + half];
        }
    }
    if local == 0u && chunk < CHUNKS {
        partials[2u * ALL + at] = select(bitcast<u32>(sums[0]), EXPONENT, bad[0] != 0u);
    }
}
