// Adagrad (Duchi, Hazan and Singer, 2011) in PyTorch's form; the decay of the learning rate is in the rate. Nothing changes
// when the gradient was not finite.
#import linear
#import update
#import norm

@group(0) @binding(0) var<storage, read_write> parameter: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read> gradient: array<f32>; // (COUNT), sums
@group(0) @binding(2) var<storage, read> outcome: Norm;
@group(0) @binding(3) var<storage, read_write> sum: array<f32>; // (COUNT), without INITIAL

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT || outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    let g = gradient[i] * outcome.scale + WEIGHT_DECAY * w;
    let squares = sum[i] + g * g;
    sum[i] = squares;
    parameter[i] = w - update.learning_rate * LR_SCALE * g / (sqrt(INITIAL + squares) + EPSILON);
}
