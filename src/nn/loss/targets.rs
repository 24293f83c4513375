//! What a loss demands of the targets' values. Looked at once for a data set in memory, on the host: kernels take what
//! comes.

use super::Loss;
use crate::error::{Error, Result};
use crate::tensor::{Elements, HostTensor};

/// How far the sum of probabilities may be from 1: they may have been rounded to a few digits.
const SUM_TOLERANCE: f64 = 1e-3;

impl Loss {
    /// Checks the targets (N, ..) of a data set: indices of one of `classes`, where their number is known, or the
    /// ignored one; for `bce` numbers from 0 to 1; for `cosine-embedding` class 0 or 1, or −1 or 1; for `kl`, and
    /// cross-entropy with a probability for each class, distributions along the last dimension, whose sum may be 0.001
    /// off; and at least one target that counts.
    ///
    /// # Errors
    /// When a target is none of these: the message names the sample, the value and what was expected.
    pub fn check_targets(&self, targets: &HostTensor, classes: Option<usize>) -> Result<()> {
        let each = targets.shape().dims().iter().skip(1).product::<usize>().max(1);
        let width = targets.shape().dims().last().copied().unwrap_or(1).max(1);
        let place = |element: usize| match each {
            1 => format!("sample {} (from 0)", element / each),
            _ => format!("sample {} (from 0), element {}", element / each, element % each),
        };
        let checked = match (self, targets.elements()) {
            (Self::CrossEntropy(settings), Elements::U32(indices)) => {
                let known = |index: &u32| {
                    settings.ignore_index == Some(*index) || classes.is_none_or(|count| (*index as usize) < count)
                };
                indices.iter().position(|index| !known(index)).map(|i| {
                    let count = classes.unwrap_or_default();
                    format!("{} is of class {}, the model gives {count} classes (from 0)", place(i), indices[i])
                })
            }
            (Self::BinaryCrossEntropy { .. }, Elements::F32(values)) => values
                .iter()
                .position(|value| !(0.0..=1.0).contains(value))
                .map(|i| format!("{} has the target {}, expected a number from 0 to 1", place(i), values[i])),
            (Self::CosineEmbedding { .. }, Elements::U32(indices)) => indices
                .iter()
                .position(|&index| index > 1)
                .map(|i| format!("{} is of class {}, expected 0 (apart) or 1 (alike)", place(i), indices[i])),
            (Self::CosineEmbedding { .. }, Elements::F32(values)) => values
                .iter()
                .position(|value| value.abs() != 1.0)
                .map(|i| format!("{} has the target {}, expected -1 (apart) or 1 (alike)", place(i), values[i])),
            // Numbers are no probabilities of classes: `Loss::check` says so.
            (Self::CrossEntropy(_), Elements::F32(_)) if width < 2 => None,
            (Self::KlDivergence | Self::CrossEntropy(_), Elements::F32(values)) => {
                values.chunks(width).enumerate().find_map(|(vector, values)| {
                    let message = no_distribution(values)?;
                    Some(format!("{} has {message}", place(vector * width)))
                })
            }
            _ => None,
        };
        let checked = checked.or_else(|| {
            let nothing = targets.shape().elements() > 0 && self.counts(targets).iter().all(|&count| count == 0.0);
            nothing.then(|| "no target counts: all are ignored, or of classes that weigh nothing".to_owned())
        });
        match checked {
            None => Ok(()),
            Some(message) => Err(Error::invalid(format!("targets for {}", self.name()), message)),
        }
    }
}

/// Why these are not the probabilities of a distribution, if they are not.
fn no_distribution(values: &[f32]) -> Option<String> {
    const EXPECTED: &str = "expected probabilities, which are not negative and have the sum 1";
    if let Some(value) = values.iter().find(|value| !(value.is_finite() && **value >= 0.0)) {
        return Some(format!("the target {value}, {EXPECTED}"));
    }
    let sum: f64 = values.iter().map(|&value| f64::from(value)).sum();
    ((sum - 1.0).abs() > SUM_TOLERANCE).then(|| format!("targets of sum {sum:.4}, {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::CrossEntropy;

    fn message(loss: &Loss, targets: HostTensor, classes: Option<usize>) -> String {
        loss.check_targets(&targets, classes).unwrap_err().to_string()
    }

    #[test]
    fn targets_of_binary_cross_entropy_are_from_0_to_1() {
        let loss = Loss::binary_cross_entropy();
        let targets = |values: [f32; 4]| HostTensor::f32([2, 2], values.to_vec()).unwrap();
        assert!(loss.check_targets(&targets([0.0, 1.0, 0.25, -0.0]), None).is_ok());
        for (value, shown) in [(1.000_001, "1.000001"), (-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            assert_eq!(
                message(&loss, targets([0.0, 1.0, value, 2.0]), None),
                format!(
                    "targets for bce: sample 1 (from 0), element 0 has the target {shown}, expected a number from 0 to 1"
                )
            );
            assert!(Loss::MeanSquaredError.check_targets(&targets([0.0, 1.0, value, 2.0]), None).is_ok());
        }
        let single = HostTensor::f32([3, 1], vec![0.0, 1.0, 7.0]).unwrap();
        assert_eq!(
            message(&loss, single, None),
            "targets for bce: sample 2 (from 0) has the target 7, expected a number from 0 to 1"
        );
    }

    #[test]
    fn targets_of_kl_are_distributions() {
        let targets = |values: [f32; 6]| HostTensor::f32([1, 2, 3], values.to_vec()).unwrap();
        for loss in [Loss::KlDivergence, Loss::cross_entropy()] {
            let expected = "expected probabilities, which are not negative and have the sum 1";
            let of = |message: &str| format!("targets for {}: sample 0 (from 0), {message}, {expected}", loss.name());
            assert!(loss.check_targets(&targets([0.5, 0.5, 0.0, 0.333, 0.333, 0.333]), None).is_ok());
            let negative = message(&loss, targets([0.5, 0.5, 0.0, 1.25, -0.25, 0.0]), None);
            assert_eq!(negative, of("element 3 has the target -0.25"));
            let nan = message(&loss, targets([f32::NAN, 0.5, 0.5, 1.0, 0.0, 0.0]), None);
            assert_eq!(nan, of("element 0 has the target NaN"));
            let half = message(&loss, targets([0.5, 0.5, 0.0, 0.25, 0.25, 0.0]), None);
            assert_eq!(half, of("element 3 has targets of sum 0.5000"));
        }
    }

    #[test]
    fn targets_of_pairs_say_apart_or_alike() {
        let loss = Loss::CosineEmbedding { margin: 0.0 };
        assert!(loss.check_targets(&HostTensor::f32([3, 1], vec![1.0, -1.0, 1.0]).unwrap(), None).is_ok());
        assert!(loss.check_targets(&HostTensor::u32([3], vec![1, 0, 1]).unwrap(), None).is_ok());
        assert_eq!(
            message(&loss, HostTensor::f32([3, 1], vec![1.0, -1.0, 0.0]).unwrap(), None),
            "targets for cosine-embedding: sample 2 (from 0) has the target 0, expected -1 (apart) or 1 (alike)"
        );
        assert_eq!(
            message(&loss, HostTensor::u32([3], vec![1, 2, 0]).unwrap(), None),
            "targets for cosine-embedding: sample 1 (from 0) is of class 2, expected 0 (apart) or 1 (alike)"
        );
    }

    #[test]
    fn class_indices_are_of_classes_that_the_model_has() {
        let targets = || HostTensor::u32([2, 2], vec![0, 6, 9, 7]).unwrap();
        let loss = |ignore_index| Loss::CrossEntropy(CrossEntropy { ignore_index, ..CrossEntropy::default() });
        assert!(loss(None).check_targets(&targets(), Some(10)).is_ok());
        assert!(loss(None).check_targets(&targets(), None).is_ok());
        assert_eq!(
            message(&loss(None), targets(), Some(7)),
            "targets for cross-entropy: sample 1 (from 0), element 0 is of class 9, the model gives 7 classes (from 0)"
        );
        assert!(loss(Some(9)).check_targets(&targets(), Some(8)).is_ok());
        assert_eq!(
            message(&loss(Some(3)), HostTensor::u32([4], vec![3; 4]).unwrap(), Some(7)),
            "targets for cross-entropy: no target counts: all are ignored, or of classes that weigh nothing"
        );
    }
}
