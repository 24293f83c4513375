// RMSprop (Tieleman and Hinton, 2012; centered: Graves, 2013) in PyTorch's form. Nothing changes when the gradient was not
// finite.
#import linear
#import update
#import norm

@group(0) @binding(0) var<storage, read_write> parameter: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read> gradient: array<f32>; // (COUNT), sums
@group(0) @binding(2) var<storage, read> outcome: Norm;
@group(0) @binding(3) var<storage, read_write> square_avg: array<f32>; // (COUNT)
#ifdef CENTERED
@group(0) @binding(4) var<storage, read_write> grad_avg: array<f32>; // (COUNT)
#endif
#ifdef MOMENTUM
#ifdef CENTERED
@group(0) @binding(5) var<storage, read_write> momentum: array<f32>; // (COUNT)
#else
@group(0) @binding(4) var<storage, read_write> momentum: array<f32>; // (COUNT)
#endif
#endif

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT || outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    let g = gradient[i] * outcome.scale + WEIGHT_DECAY * w;
    let square = ALPHA * square_avg[i] + (1.0 - ALPHA) * g * g;
    square_avg[i] = square;
    var variance = square;
#ifdef CENTERED
    let average = ALPHA * grad_avg[i] + (1.0 - ALPHA) * g;
    grad_avg[i] = average;
    // Rounding may leave less than nothing.
    variance = max(square - average * average, 0.0);
#endif
    var direction = g / (sqrt(variance) + EPSILON);
#ifdef MOMENTUM
    direction += MU * momentum[i];
    momentum[i] = direction;
#endif
    parameter[i] = w - update.learning_rate * LR_SCALE * direction;
}
