//! Cotangent of a convolution's bias.

use super::prelude::*;
use super::sum_to::{MAX_TERMS, add_parts};
use super::window::planes;

/// dy (N, O, OH, OW) → its sums over all but the channels (O), from 256 or more partial sums a channel, added in a
/// fixed order.
#[derive(Debug, Clone, Copy)]
pub struct Conv2dGradBias;

impl Op for Conv2dGradBias {
    fn name(&self) -> &'static str {
        "conv2d_grad_bias"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [dy] = expect_f32(self.name(), inputs)?;
        let [_, o, _, _] = planes(self.name(), "dy", &dy)?;
        Ok(vec![TensorType::f32([o])])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let [n, o, h, w] = planes(self.name(), "dy", &inputs[0].shape)?;
        let pixels = n * h * w;
        let parts = pixels.div_ceil(16).min(256).max(pixels.div_ceil(MAX_TERMS));
        let kernel = Kernel::linear(shader!("conv2d_grad_bias"), 64)
            .constant("O", o)
            .constant("PIXELS", h * w)
            .size("pixels", pixels)
            .size("parts", parts);
        let partial = (Operand::Scratch(0), Access::ReadWrite);
        let mut lowering = Lowering::from(elementwise(kernel, o * parts, vec![input(0), partial]));
        lowering.scratch.push(4 * (o * parts) as u64);
        add_parts(&mut lowering, 0, 0, [parts, o], target)?;
        Ok(lowering)
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let dims = inputs[0].shape.dims();
        let mut db = Reference::zeros([dims[1]]);
        for (i, dy) in inputs[0].data.iter().enumerate() {
            db.data[i / (dims[2] * dims[3]) % dims[1]] += dy;
        }
        vec![db]
    }
}

pub(super) fn examples() -> Vec<Example> {
    vec![
        Example::new(Conv2dGradBias, [&[1, 1, 1, 1]]),
        Example::new(Conv2dGradBias, [&[3, 65, 2, 7]]),
        Example::new(Conv2dGradBias, [&[5, 3, 31, 29]]),
    ]
}
