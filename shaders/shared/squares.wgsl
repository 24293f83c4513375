// Sums over a workgroup by a tree, so in a fixed order: of squares, and whether a term was not finite. The latter is
// tested on the bits: a compiler may assume that floats are finite.

const EXPONENT = 0x7f800000u;

var<workgroup> sums: array<f32, WG>;
var<workgroup> bad: array<u32, WG>;

// Whether a number's bits are those of one that is not finite.
fn overflows(bits: u32) -> u32 {
    return u32((bits & EXPONENT) == EXPONENT);
}

// Leaves the results in sums[0] and bad[0] of the first invocation. To be called by all.
fn add_up(local: u32, sum: f32, overflow: u32) {
    sums[local] = sum;
    bad[local] = overflow;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            sums[local] += sums[local + half];
            bad[local] |= bad[local + half];
        }
    }
}
