// optim::Update: what changes from one optimizer update to the next.

struct Update {
    learning_rate: f32,
    // 1/W, W the sum of the sample weights of the whole step: gradients arrive as sums.
    inverse_weight: f32,
    // 1/(1 - beta1^t) and 1/(1 - beta2^t), t the number of updates with this one.
    correction_1: f32,
    correction_2: f32,
}

@group(1) @binding(0) var<uniform> update: Update;
