// What the two halves of LAMB (You et al., 2020) share: the direction, and sums over chunks of CHUNK elements.
#import workgroups
#import update
#import norm

var<workgroup> sums: array<vec2<f32>, WG>;

// Adam's direction, from the moments m and v, and the decay of the weight w.
fn direction(w: f32, m: f32, v: f32) -> f32 {
    return m * update.correction_1 / (sqrt(v * update.correction_2) + EPSILON) + WEIGHT_DECAY * w;
}

// One past the last element of the chunk that begins at `start`; 0 when the gradient was not finite.
fn end_of(start: u32, applied: u32) -> u32 {
    return select(0u, min(start + CHUNK, sizes.count), applied != 0u);
}

// Leaves the sum over the workgroup, by a tree, in sums[0] of the first invocation. To be called by all.
fn add_up(local: u32, sum: vec2<f32>) {
    sums[local] = sum;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local < half {
            sums[local] += sums[local + half];
        }
    }
}
