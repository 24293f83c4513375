//! Cotangent of a maximum pool's input.

use super::max_pool2d::winners;
use super::prelude::*;
use super::window::Pool;

/// (x, dy) → dx: each window's dy goes to its winner, the first maximum (or first NaN) in row-major order.
#[derive(Debug, Clone, Copy)]
pub struct MaxPool2dGrad(pub Pool);

impl Op for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, dy] = expect_f32(self.name(), inputs)?;
        let expected = self.0.output(self.name(), &x)?;
        expect_shape(self.name(), "dy", &expected, &dy)?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("max_pool2d_grad"), 64);
        let kernel = self.0.constants(kernel, &inputs[0].shape, &inputs[1].shape);
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, dy) = (inputs[0], inputs[1]);
        let mut dx = Reference::zeros(x.shape.clone());
        for (winner, dy) in winners(&self.0.window(), x).into_iter().zip(&dy.data) {
            dx.data[winner] += dy;
        }
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(pool, x): (Pool, [usize; 4])| {
        let dy = pool.output("example", &x.into()).expect("the cases fit");
        Example::new(MaxPool2dGrad(pool), [&x, dy.dims()])
    };
    Pool::cases().into_iter().map(case).collect()
}
