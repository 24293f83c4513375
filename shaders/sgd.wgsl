// w ← w − lr·v, v ← μv + g, g = scale·Σ + λw (PyTorch's SGD); with NESTEROV w ← w − lr·(g + μv). Nothing changes when the
// gradient was not finite.
#import linear
#import update
#import norm

@group(0) @binding(0) var<storage, read_write> parameter: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read> gradient: array<f32>; // (COUNT), sums
@group(0) @binding(2) var<storage, read> outcome: Norm;
#ifdef MOMENTUM
@group(0) @binding(3) var<storage, read_write> momentum: array<f32>; // (COUNT)
#endif

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT || outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    var direction = gradient[i] * outcome.scale + WEIGHT_DECAY * w;
#ifdef MOMENTUM
    let velocity = MU * momentum[i] + direction;
    momentum[i] = velocity;
#ifdef NESTEROV
    direction += MU * velocity;
#else
    direction = velocity;
#endif
#endif
    parameter[i] = w - update.learning_rate * LR_SCALE * direction;
}
