//! Cotangent of a maximum pool's input.

use super::prelude::*;
use super::window::Pool;

/// (positions u32, dy) → dx: each window's dy goes to its winner, whose position in its plane [`super::MaxPool2d`]
/// gives. A position outside of its window gets nothing.
#[derive(Debug, Clone)]
pub struct MaxPool2dGrad {
    /// The windows.
    pub pool: Pool,
    /// Shape of x, which dy's does not determine.
    pub input: Shape,
}

impl Op for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [positions, dy] = expect_types(self.name(), inputs, [DType::U32, DType::F32])?;
        let expected = self.pool.output(self.name(), &self.input)?;
        expect_shape(self.name(), "positions", &expected, &positions.shape)?;
        expect_shape(self.name(), "dy", &expected, &dy.shape)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("max_pool2d_grad"), 64);
        let kernel = self.pool.constants(kernel, &self.input, &inputs[1].shape);
        Ok(elementwise(kernel, self.input.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (positions, dy) = (inputs[0], inputs[1]);
        let mut dx = Reference::zeros(self.input.clone());
        let plane = self.input[2] * self.input[3];
        for (i, window) in self.pool.window().positions(&self.input).enumerate() {
            let winner = window.into_iter().find(|pixel| (pixel % plane) as f64 == positions.data[i]);
            if let Some(pixel) = winner {
                dx.data[pixel] += dy.data[i];
            }
        }
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(pool, x): (Pool, [usize; 4])| {
        let dy = pool.output("example", &x.into()).expect("the cases fit");
        let op = MaxPool2dGrad { pool, input: x.into() };
        let mut example = Example::new(op, [dy.dims()]).labels(dy.dims(), (x[2] * x[3]) as u32);
        example.inputs.swap(0, 1);
        example
    };
    Pool::cases().into_iter().map(case).collect()
}
