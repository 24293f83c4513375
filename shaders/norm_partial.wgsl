// Partial sums of the squared averaged gradient: each workgroup sums CHUNK elements, in a fixed order; none of the sums that are
// for running statistics, with RUNNING. One that is not finite makes its partial sum infinite (tested on the bits: a compiler may assume that floats are finite).
#import linear
#import update

@group(0) @binding(0) var<storage, read> gradient: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read_write> partials: array<f32>; // (CHUNKS)

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
    let start = chunk * CHUNK;
    let end = min(start + CHUNK, COUNT);
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
        let infinity = bitcast<f32>(EXPONENT | (local & 0u));
        partials[chunk] = select(sums[0], infinity, bad[0] != 0u);
    }
}
