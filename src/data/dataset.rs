//! A data set held in memory. Its constructors are the one place where samples are checked, so that everything after
//! them may rely on finite numbers, labels in range and at least one sample. Knows nothing of files: readers report
//! lines and columns themselves.

use std::collections::HashMap;

use super::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::tensor::{DType, Elements, HostTensor, Shape, TensorType};

/// Samples, targets and optional weights in memory.
///
/// ```
/// # use everygpu::prelude::*;
/// let inputs = HostTensor::f32([3, 2], vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?; // three samples of two features
/// let data = TensorDataset::classification(inputs, vec![0, 1, 1], vec!["no".into(), "yes".into()])?;
/// assert_eq!(data.len(), 3);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDataset {
    /// `(n, ..sample)`.
    inputs: HostTensor,
    /// u32 `(n)` or f32 `(n, ..)`.
    targets: HostTensor,
    /// One per sample; without them each counts 1.
    weights: Option<Vec<f32>>,
    /// With u32 targets only.
    classes: Option<Vec<String>>,
}

impl TensorDataset {
    /// Samples `inputs` `(n, ..sample)` with class indices `labels` into `classes`.
    ///
    /// # Errors
    /// When there is no sample, the counts differ, an input is NaN or infinite, or a label has no class.
    pub fn classification(inputs: HostTensor, labels: Vec<u32>, classes: Vec<String>) -> Result<Self> {
        let n = check_samples(&inputs)?;
        check_count("labels", n, labels.len())?;
        if let Some(i) = labels.iter().position(|&label| label as usize >= classes.len()) {
            let (label, count) = (labels[i], classes.len());
            return Err(Error::invalid(
                "labels",
                format!("sample {i} has label {label}, but there are {count} classes (0 to {})", count as i64 - 1),
            ));
        }
        Ok(Self { inputs, targets: HostTensor::u32([n], labels)?, weights: None, classes: Some(classes) })
    }

    /// Samples `inputs` `(n, ..sample)` with f32 `targets` `(n, ..target)`.
    ///
    /// # Errors
    /// When there is no sample, the counts differ, the targets are not f32, or a number is NaN or infinite.
    pub fn regression(inputs: HostTensor, targets: HostTensor) -> Result<Self> {
        let n = check_samples(&inputs)?;
        if targets.dtype() != DType::F32 {
            return Err(Error::invalid("targets", format!("expected f32 values, got {}", targets.dtype())));
        }
        check_count("targets", n, targets.shape().dims().first().copied().unwrap_or(0))?;
        if targets.shape().elements() == 0 {
            return Err(Error::invalid("targets", format!("they have no elements: shape {}", targets.shape())));
        }
        check_finite("targets", &targets)?;
        Ok(Self { inputs, targets, weights: None, classes: None })
    }

    /// The same samples with a weight each; a sample's loss and gradient count in proportion to it.
    ///
    /// # Errors
    /// When there are not as many weights as samples, one is negative, NaN or infinite, or all are 0.
    pub fn with_weights(mut self, weights: Vec<f32>) -> Result<Self> {
        check_count("weights", self.len(), weights.len())?;
        if let Some(i) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            let message = format!("sample {i} has weight {}, expected a finite number of at least 0", weights[i]);
            return Err(Error::invalid("weights", message));
        }
        if weights.iter().all(|&w| w == 0.0) {
            return Err(Error::invalid("weights", "all are 0: there is nothing to learn from"));
        }
        self.weights = Some(weights);
        Ok(self)
    }

    /// The same samples with themselves as targets, for autoencoders.
    ///
    /// # Errors
    /// When the samples are integers.
    pub fn reconstruction(self) -> Result<Self> {
        if self.inputs.dtype() != DType::F32 {
            let message = format!("expected f32 samples to give back, got {}", self.inputs.dtype());
            return Err(Error::invalid("targets", message));
        }
        Ok(Self { targets: self.inputs.clone(), classes: None, ..self })
    }

    /// The same samples with class indices into `classes`, if all that they have are among these; else as they are.
    pub(crate) fn with_classes(mut self, classes: &[String]) -> Result<Self> {
        let index: HashMap<&String, u32> = classes.iter().zip(0..).collect();
        let places =
            |found: &Vec<String>| found.iter().map(|name| index.get(name).copied()).collect::<Option<Vec<_>>>();
        let Some(places) = self.classes.as_ref().and_then(places) else { return Ok(self) };
        let labels = self.targets.as_u32().unwrap_or_default().iter().map(|&label| places[label as usize]).collect();
        self.targets = HostTensor::u32([self.len()], labels)?;
        self.classes = Some(classes.to_vec());
        Ok(self)
    }

    /// The samples, `(n, ..sample)`.
    pub fn inputs(&self) -> &HostTensor {
        &self.inputs
    }

    /// The targets, u32 `(n)` or f32 `(n, ..)`.
    pub fn targets(&self) -> &HostTensor {
        &self.targets
    }

    /// The samples `indices` as a data set of their own, with the same classes.
    ///
    /// # Errors
    /// When `indices` is empty, or an index is out of range.
    pub fn select(&self, indices: &[usize]) -> Result<Self> {
        if indices.is_empty() {
            return Err(empty());
        }
        let Batch { inputs, targets, weights } = self.gather(indices)?;
        let weights = self.weights.as_ref().map(|_| weights);
        Ok(Self { inputs, targets, weights, classes: self.classes.clone() })
    }

    /// The same data set with what `change` makes of its inputs, which must be as many samples; checked again
    /// afterwards.
    pub(super) fn with_inputs(self, change: impl FnOnce(HostTensor) -> Result<HostTensor>) -> Result<Self> {
        let samples = self.len();
        let inputs = change(self.inputs)?;
        check_count("inputs", samples, check_samples(&inputs)?)?;
        Ok(Self { inputs, ..self })
    }

    /// The same data set with `change` applied to all its f32 inputs; checked again afterwards.
    pub(super) fn map_inputs(self, change: impl FnOnce(&mut [f32])) -> Result<Self> {
        self.with_inputs(|inputs| {
            let (shape, mut elements) = inputs.into_parts();
            match &mut elements {
                Elements::F32(values) => change(values),
                Elements::U32(_) => return Err(Error::invalid("inputs", "integer inputs cannot be normalised")),
            }
            HostTensor::new(shape, elements)
        })
    }
}

impl Dataset for TensorDataset {
    fn len(&self) -> usize {
        self.inputs.shape()[0]
    }

    fn input_type(&self) -> TensorType {
        row_type(&self.inputs)
    }

    fn target_type(&self) -> TensorType {
        row_type(&self.targets)
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    fn all_targets(&self) -> Option<&HostTensor> {
        Some(&self.targets)
    }

    fn fingerprint(&self) -> Option<u32> {
        let mut crc = crc32fast::Hasher::new();
        for tensor in [&self.inputs, &self.targets] {
            tensor.shape().dims().iter().for_each(|&dim| crc.update(&(dim as u64).to_le_bytes()));
            crc.update(tensor.bytes());
        }
        self.weights.iter().for_each(|weights| crc.update(bytemuck::cast_slice(weights)));
        Some(crc.finalize())
    }

    fn gather(&self, indices: &[usize]) -> Result<Batch> {
        if let Some(i) = indices.iter().find(|&&i| i >= self.len()) {
            return Err(Error::invalid("indices", format!("sample {i} of a data set of {}", self.len())));
        }
        Ok(Batch {
            inputs: gather_rows(&self.inputs, indices)?,
            targets: gather_rows(&self.targets, indices)?,
            weights: match &self.weights {
                Some(weights) => indices.iter().map(|&i| weights[i]).collect(),
                None => vec![1.0; indices.len()],
            },
        })
    }
}

/// The type of one row of `tensor`.
fn row_type(tensor: &HostTensor) -> TensorType {
    TensorType { shape: Shape::from(&tensor.shape().dims()[1..]), dtype: tensor.dtype() }
}

/// Rows `rows` of `tensor`, all of them in range.
pub(super) fn gather_rows(tensor: &HostTensor, rows: &[usize]) -> Result<HostTensor> {
    fn pick<T: Copy>(values: &[T], width: usize, rows: &[usize]) -> Vec<T> {
        let mut picked = Vec::with_capacity(rows.len() * width);
        for row in rows {
            picked.extend_from_slice(&values[row * width..(row + 1) * width]);
        }
        picked
    }
    let sample = row_type(tensor).shape;
    let width = sample.elements();
    let elements = match tensor.elements() {
        Elements::F32(values) => Elements::F32(pick(values, width, rows)),
        Elements::U32(values) => Elements::U32(pick(values, width, rows)),
    };
    HostTensor::new(sample.batched(rows.len()), elements)
}

fn empty() -> Error {
    Error::invalid("data set", "it is empty: at least one sample is needed")
}

/// The number of samples in `inputs`.
fn check_samples(inputs: &HostTensor) -> Result<usize> {
    let dims = inputs.shape().dims();
    let Some(&n) = dims.first() else {
        return Err(Error::invalid("inputs", "expected a batch dimension in front, got a scalar"));
    };
    if n == 0 {
        return Err(empty());
    }
    if inputs.shape().elements() == 0 {
        return Err(Error::invalid("inputs", format!("samples have no elements: shape {}", inputs.shape())));
    }
    check_finite("inputs", inputs)?;
    Ok(n)
}

fn check_count(what: &str, samples: usize, given: usize) -> Result<()> {
    if samples == given {
        return Ok(());
    }
    Err(Error::invalid(what, format!("expected one for each of the {samples} samples, got {given}")))
}

/// That every f32 element of `tensor` `(n, ..)` is finite.
fn check_finite(what: &str, tensor: &HostTensor) -> Result<()> {
    let Some(values) = tensor.as_f32() else { return Ok(()) };
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(()),
        Some(i) => {
            let width = row_type(tensor).shape.elements();
            let message = format!("sample {}, element {} is {}, not a finite number", i / width, i % width, values[i]);
            Err(Error::invalid(what, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(values: &[f32]) -> HostTensor {
        HostTensor::f32([values.len() / 2, 2], values.to_vec()).unwrap()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn gathers_rows_in_the_given_order() {
        let data = TensorDataset::classification(inputs(&[0., 1., 2., 3., 4., 5.]), vec![0, 1, 1], names(&["a", "b"]));
        let data = data.unwrap().with_weights(vec![1.0, 0.5, 2.0]).unwrap();
        let batch = data.gather(&[2, 0, 2]).unwrap();
        assert_eq!(batch.inputs.as_f32().unwrap(), [4., 5., 0., 1., 4., 5.]);
        assert_eq!(batch.targets.as_u32().unwrap(), [1, 0, 1]);
        assert_eq!((batch.len(), batch.weights.iter().sum()), (3, 5.0));
        assert_eq!((data.input_type(), data.target_type()), (TensorType::f32([2]), TensorType::u32([])));
        assert_eq!(data.select(&[1]).unwrap().gather(&[0]).unwrap().weights, [0.5]);
        let error = data.gather(&[3]).unwrap_err();
        assert_eq!(error.to_string(), "indices: sample 3 of a data set of 3");
    }

    #[test]
    fn regression_targets_keep_their_shape() {
        let targets = HostTensor::f32([2, 3], vec![0.5; 6]).unwrap();
        let data = TensorDataset::regression(inputs(&[0.0; 4]), targets).unwrap();
        assert_eq!((data.target_type(), data.classes()), (TensorType::f32([3]), None));
        assert_eq!(data.gather(&[1]).unwrap().weights, [1.0]);
    }

    #[test]
    fn samples_can_be_their_own_targets() {
        let data = TensorDataset::classification(inputs(&[0., 1., 2., 3.]), vec![0, 1], names(&["a", "b"])).unwrap();
        let data = data.with_weights(vec![1.0, 0.5]).unwrap().reconstruction().unwrap();
        assert_eq!((data.target_type(), data.classes()), (TensorType::f32([2]), None));
        let batch = data.gather(&[1]).unwrap();
        assert_eq!((batch.targets.as_f32().unwrap(), batch.weights), (&[2.0, 3.0][..], vec![0.5]));
        let tokens = HostTensor::u32([1, 2], vec![3, 4]).unwrap();
        let tokens = TensorDataset::classification(tokens, vec![0], names(&["a"])).unwrap();
        let error = tokens.reconstruction().unwrap_err().to_string();
        assert_eq!(error, "targets: expected f32 samples to give back, got u32");
    }

    #[test]
    fn bad_data_is_refused_with_its_place() {
        let class = |x: &[f32], labels: &[u32]| {
            TensorDataset::classification(inputs(x), labels.to_vec(), names(&["a", "b"])).unwrap_err().to_string()
        };
        assert_eq!(class(&[0., 0., 0., f32::NAN], &[0, 0]), "inputs: sample 1, element 1 is NaN, not a finite number");
        assert_eq!(class(&[f32::INFINITY, 0.], &[0]), "inputs: sample 0, element 0 is inf, not a finite number");
        assert_eq!(class(&[0., 0.], &[2]), "labels: sample 0 has label 2, but there are 2 classes (0 to 1)");
        assert_eq!(class(&[0., 0.], &[0, 1]), "labels: expected one for each of the 1 samples, got 2");
        assert_eq!(class(&[], &[]), "data set: it is empty: at least one sample is needed");

        let regression = |t: HostTensor| TensorDataset::regression(inputs(&[0.; 2]), t).unwrap_err().to_string();
        let nan = regression(HostTensor::f32([1, 1], vec![f32::NAN]).unwrap());
        assert_eq!(nan, "targets: sample 0, element 0 is NaN, not a finite number");
        assert_eq!(regression(HostTensor::u32([1], vec![0]).unwrap()), "targets: expected f32 values, got u32");
    }

    #[test]
    fn bad_weights_are_refused() {
        let weights = |w: &[f32]| {
            let data = TensorDataset::regression(inputs(&[0.; 4]), HostTensor::f32([2], vec![0.; 2]).unwrap());
            data.unwrap().with_weights(w.to_vec()).unwrap_err().to_string()
        };
        assert!(weights(&[1.0, -1.0]).starts_with("weights: sample 1 has weight -1"));
        assert!(weights(&[f32::NAN, 1.0]).starts_with("weights: sample 0 has weight NaN"));
        assert!(weights(&[1.0]).contains("2 samples, got 1"));
        assert!(weights(&[0.0, 0.0]).contains("all are 0"));
    }
}
