//! Losses: what they compare, per sample and unweighted.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Correct, MeanSquaredError, Softmax, SoftmaxCrossEntropy, ValueId, reduce};
use crate::tensor::{DType, HostTensor, Shape, TensorType};

/// What training minimises.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// −log softmax(logits)\[label\]: the model gives one logit a class, the target is a class index. A sample may have several
    /// targets (\[T\] tokens, say), each with logits of its own (\[T, classes\]): its loss is the sum over them, and means are
    /// taken over targets.
    CrossEntropy,
    /// The mean over a sample's elements of (prediction − target)².
    MeanSquaredError,
}

/// Names of the loss's statistics, by [`crate::graph::Accumulator::Statistic`] index. Each is a sum over samples of weight
/// times value: divided by the sum of weight times [`Loss::counts`] it is the mean.
pub const fn statistic_names(loss: &Loss) -> &'static [&'static str] {
    match loss {
        Loss::CrossEntropy => &["loss", "accuracy"],
        Loss::MeanSquaredError => &["loss"],
    }
}

impl Loss {
    /// The word for it in run files and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross-entropy",
            Self::MeanSquaredError => "mse",
        }
    }

    /// Checks that a model which gives `output` for a sample can be held against `target`.
    ///
    /// # Errors
    /// When it cannot: the message says what was expected and what was given.
    pub fn check(&self, output: &Shape, target: &TensorType) -> Result<()> {
        let error = |message| Err(Error::shape(format!("loss {}", self.name()), message));
        match self {
            Self::CrossEntropy if target.dtype != DType::U32 => {
                error(format!("expected class indices (u32) as a sample's targets, got {target}; for numbers take mse"))
            }
            Self::CrossEntropy if output.rank() == 0 || output.dims()[..output.rank() - 1] != *target.shape.dims() => {
                let expected = one_logit_a_class(&target.shape);
                error(format!(
                    "expected the last layer to give one logit a class, {expected}, got {output} for a sample{}",
                    if target.shape.rank() == 0 && output.rank() > 1 {
                        "; put a flatten and a linear layer at the end"
                    } else {
                        ""
                    }
                ))
            }
            Self::MeanSquaredError if target.dtype != DType::F32 => {
                error(format!("expected numbers (f32) as targets, got {target}; for classes take cross-entropy"))
            }
            Self::MeanSquaredError if *output != target.shape => {
                error(format!("expected the last layer to give the target's shape {}, got {output}", target.shape))
            }
            _ => Ok(()),
        }
    }

    /// How much each of the samples with these targets (N, ..) counts in a mean: the number of its targets, or 1 where it has
    /// one loss as a whole. A step's gradient is divided by the sum of the samples' weights times this.
    pub fn counts(&self, targets: &HostTensor) -> Vec<f64> {
        let dims = targets.shape().dims();
        let samples = dims.first().copied().unwrap_or(0);
        let count = match self {
            Self::CrossEntropy => dims.iter().skip(1).product::<usize>() as f64,
            Self::MeanSquaredError => 1.0,
        };
        vec![count; samples]
    }

    /// Appends the losses (N) of `output` (N, ..) against `target` (N, ..), then the other statistics' values (N) in the
    /// order of [`statistic_names`].
    pub(super) fn values(&self, graph: &mut Graph, output: ValueId, target: ValueId) -> Result<Vec<ValueId>> {
        graph.scoped("loss", |graph| match self {
            Self::CrossEntropy => {
                let losses = graph.apply(SoftmaxCrossEntropy, &[output, target])?;
                let correct = graph.apply(Correct, &[output, target])?;
                Ok(vec![over_targets(graph, losses)?, over_targets(graph, correct)?])
            }
            Self::MeanSquaredError => Ok(vec![graph.apply(MeanSquaredError, &[output, target])?]),
        })
    }

    /// What a user wants to see of `output`: probabilities for classes, else the values.
    pub(super) fn prediction(&self, graph: &mut Graph, output: ValueId) -> Result<ValueId> {
        match self {
            Self::CrossEntropy => graph.apply(Softmax, &[output]),
            Self::MeanSquaredError => Ok(output),
        }
    }
}

/// The sample shape of logits for targets of this shape, for messages.
fn one_logit_a_class(targets: &Shape) -> String {
    let dims: String = targets.dims().iter().map(|dim| format!("{dim}, ")).collect();
    format!("[{dims}classes]")
}

/// The sums (N) of a value for each target (N, ..) over a sample's targets.
fn over_targets(graph: &mut Graph, values: ValueId) -> Result<ValueId> {
    let axes: Vec<usize> = (1..graph.shape(values).rank()).collect();
    if axes.is_empty() { Ok(values) } else { reduce::sum(graph, values, &axes, false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(loss: Loss, output: &[usize], target: TensorType) -> String {
        loss.check(&Shape::from(output), &target).unwrap_err().to_string()
    }

    #[test]
    fn outputs_and_targets_that_do_not_match_are_refused() {
        let (classes, value) = (TensorType::u32([]), TensorType::f32([1]));
        assert!(Loss::CrossEntropy.check(&Shape::from([10]), &classes).is_ok());
        assert!(Loss::MeanSquaredError.check(&Shape::from([1]), &value).is_ok());
        assert_eq!(
            message(Loss::CrossEntropy, &[4, 4, 10], classes.clone()),
            "loss cross-entropy: expected the last layer to give one logit a class, [classes], got [4, 4, 10] for a \
             sample; put a flatten and a linear layer at the end"
        );
        assert_eq!(
            message(Loss::CrossEntropy, &[10], value.clone()),
            "loss cross-entropy: expected class indices (u32) as a sample's targets, got f32[1]; for numbers take mse"
        );
        assert!(Loss::CrossEntropy.check(&Shape::from([7, 10]), &TensorType::u32([7])).is_ok());
        assert_eq!(
            message(Loss::CrossEntropy, &[10, 7], TensorType::u32([7])),
            "loss cross-entropy: expected the last layer to give one logit a class, [7, classes], got [10, 7] for a sample"
        );
        assert_eq!(
            message(Loss::MeanSquaredError, &[10], classes),
            "loss mse: expected numbers (f32) as targets, got u32[]; for classes take cross-entropy"
        );
        assert_eq!(
            message(Loss::MeanSquaredError, &[2], value),
            "loss mse: expected the last layer to give the target's shape [1], got [2]"
        );
    }

    #[test]
    fn a_sample_counts_as_many_times_as_it_has_class_indices() {
        let tokens = HostTensor::u32([2, 3], vec![0; 6]).unwrap();
        assert_eq!(Loss::CrossEntropy.counts(&tokens), [3.0, 3.0]);
        assert_eq!(Loss::CrossEntropy.counts(&HostTensor::u32([3], vec![0; 3]).unwrap()), [1.0; 3]);
        let numbers = HostTensor::f32([2, 3], vec![0.0; 6]).unwrap();
        assert_eq!(Loss::MeanSquaredError.counts(&numbers), [1.0, 1.0]);
    }
}
