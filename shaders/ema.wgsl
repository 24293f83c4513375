// The moving average of the weights, after their update (Polyak and Juditsky, 1992, with weights that fade). Nothing changes
// when the gradient was not finite.
#import linear
#import norm

@group(0) @binding(0) var<storage, read> parameter: array<f32>; // (COUNT)
@group(0) @binding(1) var<storage, read_write> average: array<f32>; // (COUNT)
@group(0) @binding(2) var<storage, read> outcome: Norm;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) global: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = linear_index(global, groups);
    if i >= COUNT || outcome.applied == 0u {
        return;
    }
    average[i] += (WEIGHT) * (parameter[i] - average[i]);
}
