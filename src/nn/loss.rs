//! Losses: what they compare, per sample and unweighted.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Correct, MeanSquaredError, Softmax, SoftmaxCrossEntropy, ValueId};
use crate::tensor::{DType, Shape, TensorType};

/// What training minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// −log softmax(logits)\[label\]: the model gives one logit a class, the target is a class index.
    CrossEntropy,
    /// The mean over a sample's elements of (prediction − target)².
    MeanSquaredError,
}

/// Names of the loss's statistics, by [`crate::graph::Accumulator::Statistic`] index. Each is a sum over samples of weight
/// times value: divided by the sum of the weights it is the mean.
pub const fn statistic_names(loss: Loss) -> &'static [&'static str] {
    match loss {
        Loss::CrossEntropy => &["loss", "accuracy"],
        Loss::MeanSquaredError => &["loss"],
    }
}

impl Loss {
    /// The word for it in run files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross-entropy",
            Self::MeanSquaredError => "mse",
        }
    }

    /// Checks that a model which gives `output` for a sample can be held against `target`.
    ///
    /// # Errors
    /// When it cannot: the message says what was expected and what was given.
    pub fn check(self, output: &Shape, target: &TensorType) -> Result<()> {
        let error = |message| Err(Error::shape(format!("loss {}", self.name()), message));
        match self {
            Self::CrossEntropy if target.dtype != DType::U32 || target.shape.rank() != 0 => error(format!(
                "expected one class index (u32[]) as a sample's target, got {target}; for numbers take mse"
            )),
            Self::CrossEntropy if output.rank() != 1 => error(format!(
                "expected the last layer to give one logit a class, [classes], got {output} for a sample{}",
                if output.rank() > 1 { "; put a flatten and a linear layer at the end" } else { "" }
            )),
            Self::MeanSquaredError if target.dtype != DType::F32 => {
                error(format!("expected numbers (f32) as targets, got {target}; for classes take cross-entropy"))
            }
            Self::MeanSquaredError if *output != target.shape => {
                error(format!("expected the last layer to give the target's shape {}, got {output}", target.shape))
            }
            _ => Ok(()),
        }
    }

    /// Appends the losses (N) of `output` (N, ..) against `target` (N, ..), then the other statistics' values (N) in the
    /// order of [`statistic_names`].
    pub(super) fn values(self, graph: &mut Graph, output: ValueId, target: ValueId) -> Result<Vec<ValueId>> {
        graph.scoped("loss", |graph| match self {
            Self::CrossEntropy => {
                Ok(vec![graph.apply(SoftmaxCrossEntropy, &[output, target])?, graph.apply(Correct, &[output, target])?])
            }
            Self::MeanSquaredError => Ok(vec![graph.apply(MeanSquaredError, &[output, target])?]),
        })
    }

    /// What a user wants to see of `output`: probabilities for classes, else the values.
    pub(super) fn prediction(self, graph: &mut Graph, output: ValueId) -> Result<ValueId> {
        match self {
            Self::CrossEntropy => graph.apply(Softmax, &[output]),
            Self::MeanSquaredError => Ok(output),
        }
    }
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
            "loss cross-entropy: expected one class index (u32[]) as a sample's target, got f32[1]; for numbers take mse"
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
}
