//! Softmax over the last dimension, and its logarithm.

use super::SoftmaxGrad;
use super::prelude::*;
use super::rows::{along_last, launch};

/// x [..., C] → the same shape, along the last dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoftmaxForm {
    /// exp(x) / Σ exp(x), computed from x − max x.
    Softmax,
    /// ln(exp(x) / Σ exp(x)) = x − max x − ln Σ exp(x − max x): finite where softmax is 0.
    LogSoftmax,
}

pub use SoftmaxForm::{LogSoftmax, Softmax};

impl Op for SoftmaxForm {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        along_last(self.name(), &x)?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        let mut launch = launch(shader!("softmax"), target, rows, columns, vec![input(0), output(0)]);
        launch.kernel = launch.kernel.define_if(*self == Self::LogSoftmax, "LOG");
        Ok(launch.into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let inputs = [node.outputs[0], node.dy()?];
        Ok(vec![node.when(0, || emit.emit(SoftmaxGrad { of: *self }, &inputs))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let operator = match self {
            Self::Softmax => "Softmax",
            Self::LogSoftmax => "LogSoftmax",
        };
        Ok(vec![model.node(operator, &[node.input(0)], &[("axis", Attribute::Int(-1))])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let mut y = inputs[0].clone();
        let columns = y.shape[y.shape.rank() - 1];
        for row in y.data.chunks_mut(columns) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            match self {
                Self::Softmax => row.iter_mut().for_each(|x| *x = (*x - max).exp() / sum),
                Self::LogSoftmax => row.iter_mut().for_each(|x| *x -= max + sum.ln()),
            }
        }
        vec![y]
    }
}

/// Sizes for tests, also of the gradient.
pub(super) const SHAPES: [&[usize]; 6] = [&[1], &[65, 10], &[3, 32], &[5, 63], &[2, 3, 65], &[3, 1000]];

pub(super) fn examples() -> Vec<Example> {
    let cases = |op| SHAPES.map(|shape| Example::new(op, [shape]));
    let wide = Example::new(SoftmaxForm::LogSoftmax, [&[7, 33]]).filled(Fill::Wide);
    [cases(SoftmaxForm::Softmax), cases(SoftmaxForm::LogSoftmax)].concat().into_iter().chain([wide]).collect()
}
