// Global norm of the averaged gradient and the factor that the update multiplies the gradient sums by:
// 1/W, and max_norm/norm where the norm is larger (Pascanu, Mikolov and Bengio, 2013; clipped after averaging).
#import update
#import norm

@group(0) @binding(0) var<storage, read> partials: array<u32>; // (3, COUNT): as norm_partial says
@group(0) @binding(1) var<storage, read_write> outcome: Norm;

var<workgroup> sums: array<f32, WG>;
var<workgroup> bad: array<u32, WG>;

const EXPONENT = 0x7f800000u;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) local: u32) {
    var sum = 0.0;
    var overflow = 0u;
    for (var i = local; i < COUNT; i += WG) {
        let bits = partials[2u * COUNT + i];
        sum += bitcast<f32>(bits);
        overflow |= u32((bits & EXPONENT) == EXPONENT);
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
    if local == 0u {
        let norm = sqrt(sums[0]);
        var scale = update.inverse_weight;
#ifdef CLIP
        if norm > MAX_NORM {
            scale *= MAX_NORM / norm;
        }
#endif
        outcome.norm = norm;
        outcome.scale = scale;
        outcome.applied = select(1u, 0u, bad[0] != 0u || (bitcast<u32>(sums[0]) & EXPONENT) == EXPONENT);
    }
}
