// Packs a bucket of gradients into half the bits, two values a word. What rounding takes away is kept in `residual` and
// added to the next step's gradient (error feedback: Seide et al., "1-bit stochastic gradient descent", 2014). Rounding
// is done on the bits: to nearest, ties to even, the same on every device, and the value that the host will unpack is
// known here exactly.
#import elementwise
#import step

@group(0) @binding(0) var<storage, read> gradient: array<f32>; // (2·count), sums over the step
@group(0) @binding(1) var<storage, read_write> residual: array<f32>; // (2·count), of the scaled gradient
@group(0) @binding(2) var<storage, read_write> packed: array<u32>; // (count)

const EXPONENT = 0x7f800000u;
const MAGNITUDE = 0x7fffffffu;
#ifdef F16
const DROPPED = 13u; // bits of the significand
const LARGEST = 0x477fe000u; // 65504
const INFINITE = 0x7c00u;
#else
const DROPPED = 16u;
const LARGEST = 0x7f7f0000u; // 3.39e38
const INFINITE = 0x7f80u;
#endif

// The packed bits of element i; its residual is updated. What is not finite, or is too large, is sent as infinite: the
// step will be skipped, and the host clears the residuals.
fn pack(i: u32) -> u32 {
    let g = gradient[i];
    let x = g * step.gradient_scale + residual[i];
    let bits = bitcast<u32>(x);
    let magnitude = bits & MAGNITUDE;
    let sign = bits & ~MAGNITUDE;
#ifdef F16
    if magnitude < 0x38800000u { // 2^-14: subnormal in f16, a multiple of 2^-24
        let multiple = round(abs(x) * 16777216.0);
        let nearest = bitcast<u32>(multiple / 16777216.0);
        residual[i] = x - bitcast<f32>(nearest | sign);
        return (sign >> 16u) | u32(multiple);
    }
#endif
    let nearest = (magnitude + (1u << (DROPPED - 1u)) - 1u + ((bits >> DROPPED) & 1u)) & ~((1u << DROPPED) - 1u);
    if (bitcast<u32>(g) & EXPONENT) == EXPONENT || nearest > LARGEST {
        return INFINITE;
    }
    residual[i] = x - bitcast<f32>(nearest | sign);
#ifdef F16
    // From an exponent's bias of 127 to one of 15.
    return (sign >> 16u) | ((nearest >> DROPPED) - (112u << 10u));
#else
    return (sign | nearest) >> 16u;
#endif
}

fn element(i: u32) {
    packed[i] = pack(2u * i) | (pack(2u * i + 1u) << 16u);
}
