//! Cotangent of log-softmax's input.

use super::kernel::{input, output};
use super::rows::{along_last, launch};
use super::{
    Backward, Emit, Entry, Example, Lowering, Op, Reference, Step, Target, ValueId, expect_equal_shapes, expect_f32,
};
use crate::error::{Error, Result};
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "log_softmax_grad", examples };

/// (y, dy) → dy − exp(y) Σ dy along the last dimension; y is log-softmax's output.
#[derive(Debug, Clone, Copy)]
pub struct LogSoftmaxGrad;

impl Op for LogSoftmaxGrad {
    fn name(&self) -> &'static str {
        "log_softmax_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [y, dy] = expect_f32(self.name(), inputs)?;
        expect_equal_shapes(self.name(), &y, &dy)?;
        along_last(self.name(), &y)?;
        Ok(vec![TensorType::f32(y)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        Ok(launch(shader!("log_softmax_grad"), rows, columns, vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Err(Error::no_second_derivative(self.name()))
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (y, dy) = (inputs[0], inputs[1]);
        let columns = y.shape[y.shape.rank() - 1];
        let mut dx = Reference::zeros(y.shape.clone());
        for (row, dx) in dx.data.chunks_mut(columns).enumerate() {
            let (y, dy) = (&y.data[row * columns..][..columns], &dy.data[row * columns..][..columns]);
            let sum: f64 = dy.iter().sum();
            dx.iter_mut().zip(y).zip(dy).for_each(|((dx, y), dy)| *dx = dy - y.exp() * sum);
        }
        vec![dx]
    }
}

fn examples() -> Vec<Example> {
    let shapes: [&[usize]; 6] = [&[1], &[65, 10], &[3, 32], &[5, 63], &[2, 3, 65], &[3, 1000]];
    shapes.map(|shape| Example::new(LogSoftmaxGrad, [shape, shape])).into()
}
