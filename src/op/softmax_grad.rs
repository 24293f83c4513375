//! Cotangent of the input of softmax or its logarithm.

use super::prelude::*;
use super::rows::{along_last, launch};
use super::softmax::{SHAPES, SoftmaxForm};

/// (y, dy) → the cotangent of the input along the last dimension, y being the output: of softmax y (dy − Σ y dy), of
/// its logarithm dy − exp(y) Σ dy.
#[derive(Debug, Clone, Copy)]
pub struct SoftmaxGrad {
    /// What gave y.
    pub of: SoftmaxForm,
}

impl Op for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [y, dy] = expect_f32(self.name(), inputs)?;
        expect_equal_shapes(self.name(), &y, &dy)?;
        along_last(self.name(), &y)?;
        Ok(vec![TensorType::f32(y)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        let mut launch = launch(shader!("softmax_grad"), target, rows, columns, vec![input(0), input(1), output(0)]);
        launch.kernel = launch.kernel.define_if(self.of == SoftmaxForm::LogSoftmax, "LOG");
        Ok(launch.into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (y, dy) = (inputs[0], inputs[1]);
        let columns = y.shape[y.shape.rank() - 1];
        let mut dx = Reference::zeros(y.shape.clone());
        for (row, dx) in dx.data.chunks_mut(columns).enumerate() {
            let (y, dy) = (&y.data[row * columns..][..columns], &dy.data[row * columns..][..columns]);
            let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            let sum: f64 = dy.iter().sum();
            dx.iter_mut().zip(y).zip(dy).for_each(|((dx, y), dy)| {
                *dx = match self.of {
                    SoftmaxForm::Softmax => y * (dy - dot),
                    SoftmaxForm::LogSoftmax => dy - y.exp() * sum,
                }
            });
        }
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let cases = |of| SHAPES.map(|shape| Example::new(SoftmaxGrad { of }, [shape, shape]));
    [cases(SoftmaxForm::Softmax), cases(SoftmaxForm::LogSoftmax)].concat()
}
