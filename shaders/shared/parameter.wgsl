// What optimizers update: parameters by their gradient. Nothing may change when the gradient was not finite (`applied`
// is 0).
#import update
#import norm

@group(0) @binding(0) var<storage, read_write> parameter: array<f32>; // (count)
@group(0) @binding(1) var<storage, read> gradient: array<f32>; // (count), sums
@group(0) @binding(2) var<storage, read> outcome: Norm;
