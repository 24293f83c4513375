//! Cotangent of cross-entropy's logits.

use super::ClassTargets;
use super::prelude::*;
use super::softmax_cross_entropy::cases;

/// (logits [..., C], targets, dloss [...]), and class weights \[C\] where there are any → dloss (softmax(logits) Σt −
/// t), with targets and t as for [`SoftmaxCrossEntropy`](super::SoftmaxCrossEntropy).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SoftmaxCrossEntropyGrad(pub ClassTargets);

impl Op for SoftmaxCrossEntropyGrad {
    fn name(&self) -> &'static str {
        "softmax_cross_entropy_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_count(self.name(), 3 + usize::from(self.0.weighted), inputs)?;
        let lead = self.0.check(self.name(), inputs[0], inputs[1], inputs.get(3).copied())?;
        let dloss = inputs[2];
        expect_dtype(self.name(), 2, dloss, DType::F32)?;
        expect_shape(self.name(), "dloss", &lead, &dloss.shape)?;
        Ok(vec![inputs[0].clone()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let operands = vec![input(0), input(1), input(2), output(0)];
        Ok(self.0.launch(self.name(), shader!("softmax_cross_entropy_grad"), target, inputs, operands, 3)?.into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (logits, targets, dloss) = (inputs[0], inputs[1], inputs[2]);
        let columns = logits.shape[logits.shape.rank() - 1];
        let mut dx = Reference::zeros(logits.shape.clone());
        for (row, dx) in dx.data.chunks_mut(columns).enumerate() {
            let x = &logits.data[row * columns..][..columns];
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            let wanted = self.0.reference(row, logits, targets, inputs.get(3).copied());
            let total: f64 = wanted.iter().sum();
            for (column, dx) in dx.iter_mut().enumerate() {
                *dx = dloss.data[row] * ((x[column] - max).exp() / sum * total - wanted[column]);
            }
        }
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let mut examples = cases(SoftmaxCrossEntropyGrad);
    for example in &mut examples {
        let logits = example.inputs[0].0.shape.dims();
        let lead = Shape::from(&logits[..logits.len() - 1]);
        example.inputs.insert(2, (TensorType::f32(lead), Fill::Normal));
    }
    examples
}
