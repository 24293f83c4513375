//! Cross-entropy of softmax probabilities with class indices, per sample.

use super::kernel::{input, output};
use super::rows::{along_last, expect_inputs, expect_labels, launch};
use super::{Backward, Emit, Entry, Example, Lowering, Op, Reference, SoftmaxCrossEntropyGrad, Step, Target, ValueId};
use crate::error::Result;
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "softmax_cross_entropy", examples };

/// (logits [..., C], labels u32 [...]) → −log softmax(logits)\[label\], one loss a label.
///
/// Unweighted and not averaged: sample weights are the seed of the backward pass. Labels of C or more are the host's to
/// refuse; the kernel reads them as C − 1.
#[derive(Debug, Clone, Copy)]
pub struct SoftmaxCrossEntropy;

impl Op for SoftmaxCrossEntropy {
    fn name(&self) -> &'static str {
        "softmax_cross_entropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [logits, labels] = expect_inputs(self.name(), inputs)?;
        Ok(vec![TensorType::f32(expect_labels(self.name(), logits, labels)?)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        Ok(launch(shader!("softmax_cross_entropy"), rows, columns, vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let inputs = [node.inputs[0], node.inputs[1], node.dy()?];
        Ok(vec![node.when(0, || emit.emit(SoftmaxCrossEntropyGrad, &inputs))?, None])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (logits, labels) = (inputs[0], inputs[1]);
        let columns = logits.shape[logits.shape.rank() - 1];
        vec![Reference::from_fn(labels.shape.clone(), |row| {
            let x = &logits.data[row * columns..][..columns];
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            sum.ln() + max - x[(labels.data[row] as usize).min(columns - 1)]
        })]
    }
}

fn examples() -> Vec<Example> {
    let case = |lead: &[usize], classes: usize| {
        let logits = [lead, &[classes]].concat();
        Example::new(SoftmaxCrossEntropy, [&logits]).labels(lead, classes as u32)
    };
    vec![
        case(&[1], 1),
        case(&[65], 10),
        case(&[7], 32),
        case(&[3], 33),
        case(&[5], 63),
        case(&[2, 3], 65),
        case(&[3], 1000),
    ]
}
