// LAMB's direction (You et al., 2020): Adam's, from the moments m and v, and the decay of the weight w.
#import update

fn direction(w: f32, m: f32, v: f32) -> f32 {
    return m * update.correction_1 / (sqrt(v * update.correction_2) + EPSILON) + WEIGHT_DECAY * w;
}
