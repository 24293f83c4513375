//! Cross-entropy of softmax probabilities with class indices or probabilities, per target.

use super::prelude::*;
use super::{ClassTargets, SoftmaxCrossEntropyGrad};

/// (logits [..., C], targets), and class weights \[C\] where there are any → Σᶜ tᶜ · −log softmax(logits)\[c\], one
/// loss [...] a target, with t as [`ClassTargets`] says. Targets are class indices u32 [...], or probabilities f32
/// [..., C], which have no gradient.
///
/// Unweighted by samples and not averaged: sample weights are the seed of the backward pass. Indices of C or more,
/// unless they are ignored, are the host's to refuse; the kernel reads them as C − 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SoftmaxCrossEntropy(pub ClassTargets);

impl Op for SoftmaxCrossEntropy {
    fn name(&self) -> &'static str {
        "softmax_cross_entropy"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_count(self.name(), 2 + usize::from(self.0.weighted), inputs)?;
        Ok(vec![TensorType::f32(self.0.check(self.name(), inputs[0], inputs[1], inputs.get(2).copied())?)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let operands = vec![input(0), input(1), output(0)];
        Ok(self.0.launch(self.name(), shader!("softmax_cross_entropy"), target, inputs, operands, 2)?.into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let mut inputs = vec![node.inputs[0], node.inputs[1], node.dy()?];
        inputs.extend(&node.inputs[2..]);
        let dx = node.when(0, || emit.emit(SoftmaxCrossEntropyGrad(self.0), &inputs))?;
        Ok([vec![dx], vec![None; node.inputs.len() - 1]].concat())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (logits, targets) = (inputs[0], inputs[1]);
        let lead = &logits.shape.dims()[..logits.shape.rank() - 1];
        let columns = logits.shape[lead.len()];
        vec![Reference::from_fn(lead.to_vec(), |row| {
            let x = &logits.data[row * columns..][..columns];
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log_sum = x.iter().map(|x| (x - max).exp()).sum::<f64>().ln() + max;
            let wanted = self.0.reference(row, logits, targets, inputs.get(2).copied());
            wanted.iter().zip(x).map(|(t, x)| t * (log_sum - x)).sum()
        })]
    }
}

/// Examples for an op on (logits, targets, class weights where there are any) of each kind of target. Targets and
/// weights are filled so that they are not differentiated.
pub(super) fn cases<T: Op + 'static>(op: impl Fn(ClassTargets) -> T) -> Vec<Example> {
    let case = |targets: ClassTargets, lead: &[usize], classes: usize, soft: bool| {
        let logits = [lead, &[classes]].concat();
        let mut example = Example::new(op(targets), [&logits]);
        if soft {
            example.inputs.push((TensorType::f32(logits), Fill::Mask));
        } else {
            example = example.labels(lead, classes as u32);
        }
        if targets.weighted {
            example.inputs.push((TensorType::f32([classes]), Fill::Mask));
        }
        example
    };
    let plain = |lead: &[usize], classes| case(ClassTargets::default(), lead, classes, false);
    let mut examples = vec![
        plain(&[1], 1),
        plain(&[65], 10),
        plain(&[7], 32),
        plain(&[3], 33),
        plain(&[5], 63),
        plain(&[2, 3], 65),
        plain(&[3], 1000),
    ];
    for targets in ClassTargets::cases() {
        examples.extend([case(targets, &[65], 5, false), case(targets, &[2, 7], 67, false)]);
    }
    let soft = ClassTargets { weighted: true, smoothing: 0.1.into(), ignore: None };
    examples.extend([case(soft, &[65], 7, true), case(ClassTargets::default(), &[2, 3], 65, true)]);
    examples
}

pub(super) fn examples() -> Vec<Example> {
    cases(SoftmaxCrossEntropy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_checked() {
        let message = |targets: ClassTargets, inputs: &[&TensorType]| {
            SoftmaxCrossEntropy(targets).infer(inputs).unwrap_err().to_string()
        };
        let (logits, labels) = (TensorType::f32([2, 3, 5]), TensorType::u32([2, 3]));
        let weighted = ClassTargets { weighted: true, ..ClassTargets::default() };
        let plain = ClassTargets::default();
        assert_eq!(SoftmaxCrossEntropy(plain).infer(&[&logits, &logits]).unwrap(), [TensorType::f32([2, 3])]);
        assert_eq!(
            message(plain, &[&logits, &TensorType::f32([2, 3])]),
            "softmax_cross_entropy: expected targets [2, 3, 5] like the logits, got [2, 3]"
        );
        assert_eq!(message(weighted, &[&logits, &labels]), "softmax_cross_entropy: expected 3 inputs, got 2");
        assert_eq!(
            message(weighted, &[&logits, &labels, &TensorType::f32([4])]),
            "softmax_cross_entropy: expected class weights f32[5], got f32[4]"
        );
        assert_eq!(
            message(ClassTargets { smoothing: 1.0.into(), ..plain }, &[&logits, &labels]),
            "softmax_cross_entropy: expected a smoothing of at least 0 and below 1, got 1.0"
        );
    }
}
