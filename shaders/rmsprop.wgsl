// RMSprop (Tieleman and Hinton, 2012; centered: Graves, 2013) in PyTorch's form. Nothing changes when the gradient was
// not finite.
#import elementwise
#import parameter

@group(0) @binding(3) var<storage, read_write> square_avg: array<f32>; // (count)
#ifdef CENTERED
@group(0) @binding(4) var<storage, read_write> grad_avg: array<f32>; // (count)
#endif
#ifdef MOMENTUM
#ifdef CENTERED
@group(0) @binding(5) var<storage, read_write> momentum: array<f32>; // (count)
#else
@group(0) @binding(4) var<storage, read_write> momentum: array<f32>; // (count)
#endif
#endif

fn element(i: u32) {
    if outcome.applied == 0u {
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
