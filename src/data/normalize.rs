//! Brings inputs to a size that networks learn from. What is measured is measured on the training split alone and then
//! stored with the run, so that validation and prediction see the same change and no knowledge leaks from the held-out
//! part. Knows nothing of files.

use serde::{Deserialize, Serialize};

use super::TensorDataset;
use crate::error::{Error, Result};
use crate::tensor::{Elements, HostTensor};

/// What to fit: the setting, as a run file spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalization {
    /// Inputs stay as they are.
    #[default]
    None,
    /// Divide by the largest absolute value.
    Scale,
    /// Mean 0 and standard deviation 1 for each feature (each element of a sample).
    Standardize,
    /// Mean 0 and standard deviation 1 for each channel (each index of a sample's first dimension).
    StandardizeChannels,
}

/// A fitted change of inputs: fitted on the training samples, applied to all.
///
/// ```
/// # use everygpu::prelude::*;
/// let (train, held_out) = split(&digits()?, 0.2, 0, true)?;
/// let normalizer = Normalizer::fit(Normalization::Scale, &train)?;
/// let (train, held_out) = (normalizer.apply(train)?, normalizer.apply(held_out)?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Normalizer {
    /// Inputs stay as they are.
    #[default]
    None,
    /// `x · factor`.
    Scale {
        /// What every element is multiplied by.
        factor: f32,
    },
    /// `(x − mean[g]) / std[g]`, where element i of a sample is in group `g = i / run`.
    Standardize {
        /// Consecutive elements of a sample that share a mean: 1 for features, the channel's size for channels.
        run: usize,
        /// Mean of each group.
        mean: Vec<f32>,
        /// Standard deviation of each group (over n, not n − 1); 1 where the group is constant.
        std: Vec<f32>,
    },
}

impl Normalizer {
    /// Measures `train`, which must be the training split alone.
    ///
    /// # Errors
    /// When the inputs are integers and `setting` is not [`Normalization::None`].
    pub fn fit(setting: Normalization, train: &TensorDataset) -> Result<Self> {
        let dims = &train.inputs().shape().dims()[1..];
        let run = match setting {
            Normalization::None => return Ok(Self::None),
            Normalization::StandardizeChannels if dims.len() > 1 => dims[1..].iter().product(),
            _ => 1,
        };
        let values = floats(train.inputs())?;
        if setting == Normalization::Scale {
            let largest = values.iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
            let factor = 1.0 / largest;
            return Ok(Self::Scale { factor: if factor.is_finite() { factor } else { 1.0 } });
        }
        let groups = dims.iter().product::<usize>() / run;
        let (mean, std) = moments(values, groups, run);
        Ok(Self::Standardize { run, mean, std })
    }

    /// The data set with its inputs changed. Takes it by value so that large inputs are changed where they are.
    ///
    /// # Errors
    /// When the samples are not of the size that was fitted, are integers, or overflow.
    pub fn apply(&self, dataset: TensorDataset) -> Result<TensorDataset> {
        if *self == Self::None {
            return Ok(dataset);
        }
        self.check_sample(dataset.inputs().shape().dims()[1..].iter().product())?;
        dataset.map_inputs(|values| self.change(values))
    }

    /// Samples (N, ..) without targets, changed like those of a data set.
    ///
    /// # Errors
    /// Like `Normalizer::apply_rows`.
    pub fn apply_inputs(&self, inputs: HostTensor) -> Result<HostTensor> {
        if *self == Self::None {
            return Ok(inputs);
        }
        let (shape, elements) = inputs.into_parts();
        let Elements::F32(mut values) = elements else {
            return Err(Error::invalid("normalisation", "expected f32 inputs, got u32"));
        };
        self.apply_rows(&mut values)?;
        HostTensor::f32(shape, values)
    }

    /// Changes whole samples, one behind the other, in place.
    ///
    /// # Errors
    /// When `values` is not whole samples of the size that was fitted, or one overflows.
    pub(crate) fn apply_rows(&self, values: &mut [f32]) -> Result<()> {
        if let Self::Standardize { run, mean, .. } = self {
            let sample = run.saturating_mul(mean.len());
            self.check_sample(sample)?;
            if !values.len().is_multiple_of(sample) {
                let message = format!("{} values are not whole samples of {sample}", values.len());
                return Err(Error::invalid("normalisation", message));
            }
        }
        self.change(values);
        match values.iter().position(|v| !v.is_finite()) {
            Some(i) => Err(Error::invalid("normalisation", format!("value {i} becomes {}", values[i]))),
            None => Ok(()),
        }
    }

    /// That a sample has as many elements as were fitted, and that the statistics, which may come from a file, are
    /// usable.
    fn check_sample(&self, elements: usize) -> Result<()> {
        let Self::Standardize { run, mean, std } = self else { return Ok(()) };
        let usable = *run > 0
            && !mean.is_empty()
            && mean.len() == std.len()
            && mean.iter().all(|m| m.is_finite())
            && std.iter().all(|s| s.is_finite() && *s > 0.0);
        if !usable {
            return Err(Error::invalid("normalisation", "its stored mean and standard deviation cannot be used"));
        }
        let fitted = run.saturating_mul(mean.len());
        if fitted != elements {
            let message = format!("it was fitted on samples of {fitted} elements, got samples of {elements}");
            return Err(Error::invalid("normalisation", message));
        }
        Ok(())
    }

    fn change(&self, values: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Scale { factor } => values.iter_mut().for_each(|v| *v *= factor),
            Self::Standardize { run, mean, std } => {
                for sample in values.chunks_mut(run * mean.len()) {
                    for ((group, &mean), &std) in sample.chunks_mut(*run).zip(mean).zip(std) {
                        group.iter_mut().for_each(|v| *v = ((f64::from(*v) - f64::from(mean)) / f64::from(std)) as f32);
                    }
                }
            }
        }
    }
}

fn floats(inputs: &HostTensor) -> Result<&[f32]> {
    inputs.as_f32().ok_or_else(|| Error::invalid("normalisation", "integer inputs cannot be normalised"))
}

/// Mean and standard deviation of each group, in two passes in double precision.
fn moments(values: &[f32], groups: usize, run: usize) -> (Vec<f32>, Vec<f32>) {
    let count = (values.len() / groups) as f64;
    let averages = |centres: &[f64], power: i32| -> Vec<f64> {
        let mut sums = vec![0.0_f64; groups];
        for sample in values.chunks_exact(groups * run) {
            for ((sum, centre), group) in sums.iter_mut().zip(centres).zip(sample.chunks_exact(run)) {
                *sum += group.iter().map(|&v| (f64::from(v) - centre).powi(power)).sum::<f64>();
            }
        }
        sums.iter().map(|sum| sum / count).collect()
    };
    let mean = averages(&vec![0.0; groups], 1);
    let variance = averages(&mean, 2);
    // A float32 added to itself up to 2^29 times is exact in double precision: a constant group has no spread at all.
    let std = variance.iter().map(|variance| variance.sqrt() as f32);
    let std = std.map(|std| if std < f32::MIN_POSITIVE { 1.0 } else { std });
    (mean.iter().map(|&m| m as f32).collect(), std.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(sample: &[usize], values: &[f32]) -> TensorDataset {
        let n = values.len() / sample.iter().product::<usize>();
        let inputs = HostTensor::f32([&[n], sample].concat(), values.to_vec()).unwrap();
        TensorDataset::classification(inputs, vec![0; n], vec!["x".into()]).unwrap()
    }

    fn apply(normalizer: &Normalizer, data: &TensorDataset) -> Vec<f32> {
        normalizer.apply(data.clone()).unwrap().inputs().as_f32().unwrap().to_vec()
    }

    #[test]
    fn features_are_standardised_and_constant_ones_become_zero() {
        let train = data(&[3], &[1., 0.1, 5., 3., 0.1, 5.]);
        let fitted = Normalizer::fit(Normalization::Standardize, &train).unwrap();
        assert_eq!(fitted, Normalizer::Standardize { run: 1, mean: vec![2., 0.1, 5.], std: vec![1., 1., 1.] });
        assert_eq!(apply(&fitted, &train), [-1., 0., 0., 1., 0., 0.]);
        let mut row = [4.0, 0.1, 6.0];
        fitted.apply_rows(&mut row).unwrap();
        assert_eq!(row, [2., 0., 1.]);
    }

    #[test]
    fn channels_share_their_statistics() {
        let train = data(&[2, 1, 2], &[0., 4., 10., 10., 4., 0., 30., 30.]);
        let fitted = Normalizer::fit(Normalization::StandardizeChannels, &train).unwrap();
        assert_eq!(fitted, Normalizer::Standardize { run: 2, mean: vec![2., 20.], std: vec![2., 10.] });
        assert_eq!(apply(&fitted, &train), [-1., 1., -1., -1., 1., -1., 1., 1.]);
        let flat = data(&[2], &[0., 0., 2., 2.]);
        assert_eq!(
            Normalizer::fit(Normalization::StandardizeChannels, &flat).unwrap(),
            Normalizer::fit(Normalization::Standardize, &flat).unwrap()
        );
    }

    #[test]
    fn scaling_divides_by_the_largest_value_of_the_training_split() {
        let train = data(&[2], &[0., -8., 4., 2.]);
        let fitted = Normalizer::fit(Normalization::Scale, &train).unwrap();
        assert_eq!(fitted, Normalizer::Scale { factor: 0.125 });
        assert_eq!(apply(&fitted, &data(&[2], &[16., 0.])), [2., 0.]);
        for zero in [0.0, 1e-45] {
            let fitted = Normalizer::fit(Normalization::Scale, &data(&[1], &[zero])).unwrap();
            assert_eq!(fitted, Normalizer::Scale { factor: 1.0 });
        }
        assert_eq!(Normalizer::fit(Normalization::None, &train).unwrap(), Normalizer::None);
    }

    #[test]
    fn a_stored_normaliser_comes_back_bit_for_bit() {
        let values: Vec<f32> = (0..300_u16).map(|i| (f32::from(i) * 0.37).sin() * 1e-3).collect();
        let fitted = Normalizer::fit(Normalization::Standardize, &data(&[10], &values)).unwrap();
        let json = serde_json::to_string(&fitted).unwrap();
        assert!(json.starts_with(r#"{"kind":"standardize","run":1,"mean":["#), "{json}");
        assert_eq!(serde_json::from_str::<Normalizer>(&json).unwrap(), fitted);
        assert_eq!(toml::from_str::<Normalizer>(&toml::to_string(&fitted).unwrap()).unwrap(), fitted);
    }

    #[test]
    fn samples_of_another_size_damaged_statistics_and_overflow_are_refused() {
        let fitted = Normalizer::fit(Normalization::Standardize, &data(&[2], &[0., 0., 1., 1.])).unwrap();
        let error = fitted.apply(data(&[3], &[0.; 3])).unwrap_err().to_string();
        assert_eq!(error, "normalisation: it was fitted on samples of 2 elements, got samples of 3");
        let error = fitted.apply_rows(&mut [0.; 3]).unwrap_err().to_string();
        assert_eq!(error, "normalisation: 3 values are not whole samples of 2");
        for (run, mean, std) in [(0, vec![0.], vec![1.]), (1, vec![], vec![]), (1, vec![0.], vec![0.])] {
            let damaged = Normalizer::Standardize { run, mean, std };
            assert!(damaged.apply_rows(&mut [1.0]).unwrap_err().to_string().contains("cannot be used"));
        }
        let scale = Normalizer::Scale { factor: 1e30 };
        assert_eq!(scale.apply_rows(&mut [1., 1e30]).unwrap_err().to_string(), "normalisation: value 1 becomes inf");
        assert!(scale.apply(data(&[1], &[1e30])).unwrap_err().to_string().contains("sample 0, element 0 is inf"));
    }

    #[test]
    fn integers_are_left_alone_or_refused() {
        let inputs = HostTensor::u32([1, 2], vec![3, 4]).unwrap();
        let tokens = TensorDataset::classification(inputs, vec![0], vec!["x".into()]).unwrap();
        assert_eq!(Normalizer::None.apply(tokens.clone()).unwrap(), tokens);
        assert!(Normalizer::fit(Normalization::Scale, &tokens).is_err());
    }
}
