// Adagrad (Duchi, Hazan and Singer, 2011) in PyTorch's form; the decay of the learning rate is in the rate. Nothing
// changes when the gradient was not finite.
#import elementwise
#import parameter

@group(0) @binding(3) var<storage, read_write> sum: array<f32>; // (count), without INITIAL

fn element(i: u32) {
    if outcome.applied == 0u {
        return;
    }
    let w = parameter[i];
    let g = gradient[i] * outcome.scale + WEIGHT_DECAY * w;
    let squares = sum[i] + g * g;
    sum[i] = squares;
    parameter[i] = w - update.learning_rate * LR_SCALE * g / (sqrt(INITIAL + squares) + EPSILON);
}
