// The moving average of the weights, after their update (Polyak and Juditsky, 1992, with weights that fade). Nothing
// changes when the gradient was not finite.
#import elementwise
#import norm

@group(0) @binding(0) var<storage, read> parameter: array<f32>; // (count)
@group(0) @binding(1) var<storage, read_write> average: array<f32>; // (count)
@group(0) @binding(2) var<storage, read> outcome: Norm;

fn element(i: u32) {
    if outcome.applied == 0u {
        return;
    }
    average[i] += (WEIGHT) * (parameter[i] - average[i]);
}
