// What a kernel leaves in an output: a value or, with ADD, what the output's `adds` says: 0 the value, 1 the step's sum
// so far and the value (nothing is there in the step's first micro-batch), 2 what is there and the value.
#ifdef ADD
#import step

fn so_far(old: f32) -> f32 {
    return select(old, 0.0, sizes.adds == 0u || (sizes.adds == 1u && step.first != 0u));
}

fn added(old: f32, value: f32) -> f32 {
    return so_far(old) + value;
}
#else
fn so_far(old: f32) -> f32 {
    return old;
}

fn added(old: f32, value: f32) -> f32 {
    return value;
}
#endif
