//! Cotangent of cross-entropy's logits.

use super::kernel::{input, output};
use super::rows::{along_last, expect_inputs, expect_labels, launch};
use super::{Backward, Emit, Entry, Example, Lowering, Op, Reference, Step, Target, ValueId, expect_dtype};
use crate::error::{Error, Result};
use crate::op::shader::shader;
use crate::tensor::{DType, TensorType};

/// Table line.
pub const ENTRY: Entry = Entry { name: "softmax_cross_entropy_grad", examples };

/// (logits [..., C], labels u32 [...], dloss [...]) → dloss (softmax(logits) − onehot(labels)).
#[derive(Debug, Clone, Copy)]
pub struct SoftmaxCrossEntropyGrad;

impl Op for SoftmaxCrossEntropyGrad {
    fn name(&self) -> &'static str {
        "softmax_cross_entropy_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [logits, labels, dloss] = expect_inputs(self.name(), inputs)?;
        let lead = expect_labels(self.name(), logits, labels)?;
        expect_dtype(self.name(), 2, dloss, DType::F32)?;
        if dloss.shape != lead {
            return Err(Error::shape(self.name(), format!("expected dloss {lead}, got {}", dloss.shape)));
        }
        Ok(vec![logits.clone()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        let operands = vec![input(0), input(1), input(2), output(0)];
        Ok(launch(shader!("softmax_cross_entropy_grad"), rows, columns, operands).into())
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Err(Error::no_second_derivative(self.name()))
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (logits, labels, dloss) = (inputs[0], inputs[1], inputs[2]);
        let columns = logits.shape[logits.shape.rank() - 1];
        let mut dx = Reference::zeros(logits.shape.clone());
        for (row, dx) in dx.data.chunks_mut(columns).enumerate() {
            let x = &logits.data[row * columns..][..columns];
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            let label = (labels.data[row] as usize).min(columns - 1);
            for (column, dx) in dx.iter_mut().enumerate() {
                let target = f64::from(u8::from(column == label));
                *dx = dloss.data[row] * ((x[column] - max).exp() / sum - target);
            }
        }
        vec![dx]
    }
}

fn examples() -> Vec<Example> {
    let case = |lead: &[usize], classes: usize| {
        let logits = [lead, &[classes]].concat();
        let mut example = Example::new(SoftmaxCrossEntropyGrad, [&logits, lead]).labels(lead, classes as u32);
        example.inputs.swap(1, 2);
        example
    };
    vec![case(&[1], 1), case(&[65], 10), case(&[7], 32), case(&[5], 63), case(&[2, 3], 65), case(&[3], 1000)]
}
