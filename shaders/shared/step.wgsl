// kernel::Step: what changes from one micro-batch to the next.

struct Step {
    seed: vec2<u32>,
    step: u32,
    first_row: u32,
    valid: u32,
    gradient_scale: f32,
    reserved_0: u32,
    reserved_1: u32,
}

@group(1) @binding(0) var<uniform> step: Step;
