// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023). Nothing changes when the gradient was not
// finite.
#import elementwise
#import parameter

@group(0) @binding(3) var<storage, read_write> exp_avg: array<f32>; // (count)

fn element(i: u32) {
    if outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    let g = gradient[i] * outcome.scale;
    let m = exp_avg[i];
    exp_avg[i] = BETA2 * m + (1.0 - BETA2) * g;
    let direction = sign(BETA1 * m + (1.0 - BETA1) * g) + WEIGHT_DECAY * w;
    parameter[i] = w - update.learning_rate * LR_SCALE * direction;
}
