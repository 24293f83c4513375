//! Trained models for other programs.

use crate::data::{Border, Normalizer};
use crate::error::{Error, Result};
use crate::graph::to_onnx;
use crate::nn::{Scaled, prediction_graph};
use crate::onnx;
use crate::tensor::{HostTensor, Named, Shape};
use crate::train::Task;

impl Task {
    /// The model with `weights`, which are all of its parameters by name, for inference in other programs. Its input
    /// `input` (batch, ..) takes any number of samples as they are in the data: their `border` and `normalizer` are
    /// part of it. Its output `prediction` is what [`super::Predictor::predict`] gives.
    ///
    /// # Errors
    /// When the model has something that ONNX cannot express (the message names the layer), or a parameter has no
    /// value.
    pub fn onnx(&self, border: Border, normalizer: &Normalizer, weights: &Named<Vec<f32>>) -> Result<onnx::Model> {
        border.inside(&self.model.input().shape)?;
        let [shift, factor] = change(normalizer, &self.model.input().shape)?;
        let model = Scaled { model: self.model.as_ref(), border: border.0, shift, factor };
        to_onnx(&|samples| prediction_graph(&model, &self.loss, samples), weights)
    }
}

/// What `normalizer` takes off samples of this shape, and what it multiplies them by.
fn change(normalizer: &Normalizer, sample: &Shape) -> Result<[Option<HostTensor>; 2]> {
    match normalizer {
        Normalizer::None => Ok([None, None]),
        Normalizer::Scale { factor } => Ok([None, Some(HostTensor::f32([], vec![*factor])?)]),
        Normalizer::Standardize { run, mean, std } => {
            // Groups of `run` elements are the inner dimensions of a sample.
            let dims = sample.dims();
            let inner = (0..=dims.len()).rev().find(|&axis| dims[axis..].iter().product::<usize>() == *run);
            let along = inner.map(|axis| [&dims[..axis], &vec![1; dims.len() - axis]].concat());
            let along = along.filter(|along| along.iter().product::<usize>() == mean.len());
            let along = along.ok_or_else(|| {
                let groups = mean.len();
                let message = format!("expected groups of the elements of samples {sample}, got {groups} of {run}");
                Error::invalid("normalisation", message)
            })?;
            let factor = std.iter().map(|&std| (1.0 / f64::from(std)) as f32).collect();
            Ok([Some(HostTensor::f32(along.clone(), mean.clone())?), Some(HostTensor::f32(along, factor)?)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normalizer_becomes_tensors_that_broadcast_to_a_sample() {
        let fitted = |run, groups| Normalizer::Standardize { run, mean: vec![1.0; groups], std: vec![2.0; groups] };
        let shapes = |normalizer: &Normalizer| {
            change(normalizer, &[3, 2, 5].into()).unwrap().map(|tensor| tensor.map(|t| t.shape().clone()))
        };
        assert_eq!(shapes(&fitted(10, 3)), [Some([3, 1, 1].into()), Some([3, 1, 1].into())]);
        assert_eq!(shapes(&fitted(1, 30)), [Some([3, 2, 5].into()), Some([3, 2, 5].into())]);
        assert_eq!(shapes(&Normalizer::Scale { factor: 0.5 }), [None, Some([].into())]);
        assert_eq!(shapes(&Normalizer::None), [None, None]);
        let error = change(&fitted(7, 3), &[3, 2, 5].into()).unwrap_err().to_string();
        assert_eq!(error, "normalisation: expected groups of the elements of samples [3, 2, 5], got 3 of 7");
    }
}
