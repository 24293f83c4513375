// w ← w − lr·v, v ← μv + g, g = scale·Σ + λw (PyTorch's SGD); with NESTEROV w ← w − lr·(g + μv). Nothing changes when
// the gradient was not finite.
#import elementwise
#import parameter

#ifdef MOMENTUM
@group(0) @binding(3) var<storage, read_write> momentum: array<f32>; // (count)
#endif

fn element(i: u32) {
    if outcome.applied == 0u {
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
