// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023). Nothing changes when the gradient was not finite.
#import linear
#import update
#import norm

@group(0) @binding(0) var<storage, read_write> parameter: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read> gradient: array<f32>; // (COUNT), sums
@group(0) @binding(2) var<storage, read> outcome: Norm;
@group(0) @binding(3) var<storage, read_write> exp_avg: array<f32>; // (COUNT)

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT || outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    let g = gradient[i] * outcome.scale;
    let m = exp_avg[i];
    exp_avg[i] = BETA2 * m + (1.0 - BETA2) * g;
    let direction = sign(BETA1 * m + (1.0 - BETA1) * g) + WEIGHT_DECAY * w;
    parameter[i] = w - update.learning_rate * LR_SCALE * direction;
}
