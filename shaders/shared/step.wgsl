// kernel::Step: what changes from one micro-batch to the next.

struct Step {
    seed: vec2<u32>,
    step: u32,
    first_row: u32,
    valid: u32,
    gradient_scale: f32,
    first: u32,
    reserved: u32,
}

@group(1) @binding(0) var<uniform> step: Step;
