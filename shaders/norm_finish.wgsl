// Global norm of the averaged gradient and the factor that the update multiplies the gradient sums by:
// 1/W, and max_norm/norm where the norm is larger (Pascanu, Mikolov and Bengio, 2013; clipped after averaging).
#import update
#import norm
#import squares

@group(0) @binding(0) var<storage, read> partials: array<u32>; // (3, count): as norm_partial says
@group(0) @binding(1) var<storage, read_write> outcome: Norm;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) local: u32) {
    var sum = 0.0;
    var overflow = 0u;
    for (var i = local; i < sizes.count; i += WG) {
        let bits = partials[2u * sizes.count + i];
        sum += bitcast<f32>(bits);
        overflow |= overflows(bits);
    }
    add_up(local, sum, overflow);
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
        outcome.applied = select(1u, 0u, bad[0] != 0u || overflows(bitcast<u32>(sums[0])) != 0u);
    }
}
