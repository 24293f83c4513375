//! Cross-entropy over classes.

use super::samples;
use crate::error::Result;
use crate::graph::Graph;
use crate::op::{ClassTargets, Correct, SoftmaxCrossEntropy, ValueId, reduce};
use crate::tensor::{DType, Elements, HostTensor, Shape, TensorType};

/// Cross-entropy, as PyTorch's `CrossEntropyLoss`: −Σᶜ wᶜ tᶜ log softmax(logits)\[c\], where t is 1 for the target's
/// class, else 0.
///
/// The target is a class index (u32), or a probability for each class (f32), which then are t. A sample may have
/// several targets (\[T\] tokens, say), each with logits of its own (\[T, classes\]): its loss is the sum over them.
///
/// Means are taken over targets: over the sum of wᶜ of their classes, without those that are ignored. Targets that are
/// probabilities count 1 each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CrossEntropy {
    /// ε: t becomes (1 − ε) t + ε / classes (Szegedy et al., "Rethinking the Inception architecture", 2016).
    pub label_smoothing: f32,
    /// Targets of this index count for nothing, in the loss, the gradient and the accuracy: padding, for instance.
    pub ignore_index: Option<u32>,
    /// w, one a class; 1 without.
    pub class_weights: Option<Vec<f32>>,
}

impl CrossEntropy {
    /// What is wrong with the settings, output and target of a sample, if anything is.
    pub(super) fn check(&self, output: &Shape, target: &TensorType) -> Result<(), String> {
        let classes = output.dims().last().copied().unwrap_or(0);
        let soft = target.dtype == DType::F32;
        if soft && (target.shape != *output || classes < 2) {
            return Err(format!(
                "expected class indices (u32) or a probability for each class (f32{output}) as a sample's targets, got \
                 {target}; for numbers take mse"
            ));
        }
        if !soft && (output.rank() == 0 || output.dims()[..output.rank() - 1] != *target.shape.dims()) {
            let one = target.shape.rank() == 0 && output.rank() > 1;
            let advice = if one { "; put a flatten and a linear layer at the end" } else { "" };
            let dims: String = target.shape.dims().iter().map(|dim| format!("{dim}, ")).collect();
            return Err(format!(
                "expected the last layer to give one logit a class, [{dims}classes], got {output} for a sample{advice}"
            ));
        }
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return Err(format!("expected label_smoothing of at least 0 and below 1, got {}", self.label_smoothing));
        }
        if soft && self.ignore_index.is_some() {
            return Err(format!("ignore_index goes with class indices as targets, not with {target}"));
        }
        let Some(weights) = &self.class_weights else { return Ok(()) };
        if weights.len() != classes {
            return Err(format!("expected {classes} class_weights, one a class, got {}", weights.len()));
        }
        if weights.iter().any(|w| !w.is_finite() || *w < 0.0) || weights.iter().all(|&w| w == 0.0) {
            return Err(format!("expected finite class_weights of at least 0, not all 0, got {weights:?}"));
        }
        Ok(())
    }

    /// How much each sample counts: its targets, with class weights if `weighted`.
    pub(super) fn counts(&self, targets: &HostTensor, weighted: bool) -> Vec<f64> {
        let (samples, each) = (samples(targets), targets.shape().dims().iter().skip(1).product::<usize>());
        let weights = self.class_weights.as_deref().filter(|_| weighted);
        match targets.elements() {
            Elements::U32(indices) if self.ignore_index.is_some() || weights.is_some() => {
                let count = |index: &u32| match weights {
                    _ if self.ignore_index == Some(*index) => 0.0,
                    // As the kernel reads an index beyond the last class.
                    Some(weights) => f64::from(weights[(*index as usize).min(weights.len() - 1)]),
                    None => 1.0,
                };
                (0..samples).map(|sample| indices[sample * each..][..each].iter().map(count).sum()).collect()
            }
            Elements::U32(_) => vec![each as f64; samples],
            Elements::F32(_) => {
                let classes = targets.shape().dims().last().copied().unwrap_or(1).max(1);
                vec![(each / classes) as f64; samples]
            }
        }
    }

    /// Losses (N) and whether predictions are right (N), summed over a sample's targets.
    pub(super) fn values(&self, graph: &mut Graph, output: ValueId, target: ValueId) -> Result<Vec<ValueId>> {
        let targets = ClassTargets {
            smoothing: self.label_smoothing.into(),
            ignore: self.ignore_index,
            weighted: self.class_weights.is_some(),
        };
        let mut inputs = vec![output, target];
        if let Some(weights) = &self.class_weights {
            inputs.push(graph.constant("class_weights", HostTensor::f32([weights.len()], weights.clone())?));
        }
        let losses = graph.apply(SoftmaxCrossEntropy(targets), &inputs)?;
        let last = graph.shape(output).rank() - 1;
        let labels = match graph.values()[target.index()].ty.dtype {
            DType::U32 => target,
            DType::F32 => reduce::argmax(graph, target, &[last], false)?,
        };
        let correct = graph.apply(Correct { ignore: self.ignore_index }, &[output, labels])?;
        Ok(vec![over_targets(graph, losses)?, over_targets(graph, correct)?])
    }
}

/// The sums (N) of a value for each target (N, ..) over a sample's targets.
fn over_targets(graph: &mut Graph, values: ValueId) -> Result<ValueId> {
    let axes: Vec<usize> = (1..graph.shape(values).rank()).collect();
    if axes.is_empty() { Ok(values) } else { reduce::sum(graph, values, &axes, false) }
}
