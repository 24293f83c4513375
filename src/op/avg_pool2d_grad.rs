//! Cotangent of a mean pool's input.

use super::AvgPool2d;
use super::prelude::*;

/// dy → dx: each window's dy, divided as in the forward pass, goes to all its pixels.
#[derive(Debug, Clone)]
pub struct AvgPool2dGrad {
    /// The pool.
    pub pool: AvgPool2d,
    /// Shape of x, which dy's does not determine.
    pub input: Shape,
}

impl Op for AvgPool2dGrad {
    fn name(&self) -> &'static str {
        "avg_pool2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [dy] = expect_f32(self.name(), inputs)?;
        let expected = self.pool.pool.output(self.name(), &self.input)?;
        expect_shape(self.name(), "dy", &expected, &dy)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("avg_pool2d_grad"), 64);
        let kernel = self.pool.constants(kernel, &self.input, &inputs[0].shape);
        Ok(elementwise(kernel, self.input.elements(), vec![input(0), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let mut dx = Reference::zeros(self.input.clone());
        for (window, dy) in self.pool.pool.window().positions(&self.input).zip(&inputs[0].data) {
            for &i in &window {
                dx.data[i] += dy / self.pool.divisor(window.len());
            }
        }
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(pool, x): (AvgPool2d, [usize; 4])| {
        let dy = pool.pool.output("example", &x.into()).expect("the cases fit");
        Example::new(AvgPool2dGrad { pool, input: x.into() }, [dy.dims()])
    };
    AvgPool2d::cases().into_iter().map(case).collect()
}
