// AdamW (Loshchilov and Hutter, 2019, algorithm 2, in PyTorch's form). Nothing changes when the gradient was not
// finite.
#import elementwise
#import parameter

@group(0) @binding(3) var<storage, read_write> exp_avg: array<f32>; // (count)
@group(0) @binding(4) var<storage, read_write> exp_avg_sq: array<f32>; // (count)

fn element(i: u32) {
    if outcome.applied == 0u {
        return;
    }
    let g = gradient[i] * outcome.scale;
    let m = BETA1 * exp_avg[i] + (1.0 - BETA1) * g;
    let v = BETA2 * exp_avg_sq[i] + (1.0 - BETA2) * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    let rate = update.learning_rate * LR_SCALE;
    let w = parameter[i] * (1.0 - rate * WEIGHT_DECAY);
    let denominator = sqrt(v * update.correction_2) + EPSILON;
    parameter[i] = w - rate * update.correction_1 * m / denominator;
}
