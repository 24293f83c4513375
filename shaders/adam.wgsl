// Adam (Kingma and Ba, 2015) with an L2 penalty, in PyTorch's form. Nothing changes when the gradient was not finite.
#import elementwise
#import parameter

@group(0) @binding(3) var<storage, read_write> exp_avg: array<f32>; // (count)
@group(0) @binding(4) var<storage, read_write> exp_avg_sq: array<f32>; // (count)

fn element(i: u32) {
    if outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    let g = gradient[i] * outcome.scale + WEIGHT_DECAY * w;
    let m = BETA1 * exp_avg[i] + (1.0 - BETA1) * g;
    let v = BETA2 * exp_avg_sq[i] + (1.0 - BETA2) * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    let denominator = sqrt(v * update.correction_2) + EPSILON;
    parameter[i] = w - update.learning_rate * LR_SCALE * update.correction_1 * m / denominator;
}
