//! Losses: what they compare, per sample and unweighted, and how much each sample counts in a mean.
//!
//! A loss gives one number a sample, ℓₛ. What training minimises is Σ wₛ ℓₛ / W over a step, with W = Σ wₛ cₛ, where
//! the count cₛ is known from the sample's targets alone ([`Loss::counts`]): W is there before the step starts, however
//! it is divided.

mod classes;
mod elements;
mod targets;
#[cfg(test)]
mod tests;

pub use classes::CrossEntropy;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Activation, MeanSquaredError, Softmax, ValueId};
use crate::tensor::{DType, HostTensor, Shape, TensorType};

/// What training minimises.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// −log softmax(logits)\[label\]: the model gives one logit a class.
    CrossEntropy(CrossEntropy),
    /// −p y log σ(x) − (1 − y) log(1 − σ(x)) for logits x and targets y from 0 to 1 of the same shape, the mean over a
    /// sample's elements. p, the weight of positive targets, is one for all, or one for each position of the last
    /// dimension (PyTorch's `BCEWithLogitsLoss`).
    BinaryCrossEntropy {
        /// p.
        pos_weight: Vec<f32>,
    },
    /// The mean over a sample's elements of (prediction − target)².
    MeanSquaredError,
    /// The mean over a sample's elements of |prediction − target|.
    MeanAbsoluteError,
    /// The mean over a sample's elements of d²/2 where d = |prediction − target| is up to δ, else δ (d − δ/2) (Huber,
    /// "Robust Estimation of a Location Parameter", 1964).
    Huber {
        /// δ.
        delta: f32,
    },
    /// Σ t (log t − log softmax(logits)) over a sample's elements, softmax along the last dimension; targets t are
    /// probabilities (PyTorch's `KLDivLoss` of log-probabilities with `batchmean`).
    KlDivergence,
    /// 1 − cos of the angle between prediction and target along the last dimension, the mean over a sample's vectors.
    /// (A target is a vector alone, to which the prediction is to be alike.)
    Cosine,
    /// For a model that gives two vectors for a sample, (2, D), which are to be alike or apart: 1 − cos of the angle
    /// between them, or max(0, cos − margin) (PyTorch's `CosineEmbeddingLoss`). The target says which: a class index, 0
    /// for apart and 1 for alike, or a number, −1 for apart and 1 for alike.
    CosineEmbedding {
        /// The cosine up to which two vectors that are to be apart cost nothing, from −1 to 1; usually 0 to 0.5.
        margin: f32,
    },
}

/// Names of the loss's statistics, by [`crate::graph::Accumulator::Statistic`] index. Each is a sum over samples of
/// weight times value: the loss divided by the sum of weight times [`Loss::counts`] is the mean, a further one divided
/// by the sum of weight times [`Loss::metric_counts`].
pub(crate) const fn statistic_names(loss: &Loss) -> &'static [&'static str] {
    match loss {
        Loss::CrossEntropy(_) | Loss::BinaryCrossEntropy { .. } => &["loss", "accuracy"],
        _ => &["loss"],
    }
}

impl Loss {
    /// Cross-entropy with class indices, every class and index counting the same.
    pub const fn cross_entropy() -> Self {
        Self::CrossEntropy(CrossEntropy { label_smoothing: 0.0, ignore_index: None, class_weights: None })
    }

    /// Binary cross-entropy in which positive targets count as others do.
    pub fn binary_cross_entropy() -> Self {
        Self::BinaryCrossEntropy { pos_weight: vec![1.0] }
    }

    /// The word for it in run files and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CrossEntropy(_) => "cross-entropy",
            Self::BinaryCrossEntropy { .. } => "bce",
            Self::MeanSquaredError => "mse",
            Self::MeanAbsoluteError => "l1",
            Self::Huber { .. } => "huber",
            Self::KlDivergence => "kl",
            Self::Cosine => "cosine",
            Self::CosineEmbedding { .. } => "cosine-embedding",
        }
    }

    /// The targets that it takes for a model that gives `output` for a sample: class indices where it takes them, else
    /// numbers.
    pub fn target(&self, output: &Shape) -> TensorType {
        match self {
            Self::CrossEntropy(_) => TensorType::u32(&output.dims()[..output.rank().saturating_sub(1)]),
            Self::CosineEmbedding { .. } => TensorType::u32([]),
            _ => TensorType::f32(output.dims()),
        }
    }

    /// Checks its settings, and that a model which gives `output` for a sample can be held against `target`.
    ///
    /// # Errors
    /// When it cannot: the message says what was expected and what was given.
    pub fn check(&self, output: &Shape, target: &TensorType) -> Result<()> {
        let checked = match self {
            Self::CrossEntropy(settings) => settings.check(output, target),
            Self::CosineEmbedding { margin } => check_pairs(*margin, output, target),
            _ => check_numbers(output, target).and_then(|()| self.check_settings(output)),
        };
        checked.map_err(|message| Error::shape(format!("loss {}", self.name()), message))
    }

    fn check_settings(&self, output: &Shape) -> Result<(), String> {
        let last = output.dims().last().copied();
        match self {
            Self::BinaryCrossEntropy { pos_weight } => {
                if pos_weight.len() != 1 && Some(pos_weight.len()) != last {
                    let message = format!("expected one pos_weight, or one for each of the last dimension of {output}");
                    return Err(format!("{message}, got {}", pos_weight.len()));
                }
                match pos_weight.iter().find(|weight| !(weight.is_finite() && **weight > 0.0)) {
                    Some(weight) => Err(format!("expected a finite pos_weight above 0, got {weight}")),
                    None => Ok(()),
                }
            }
            Self::Huber { delta } if !(delta.is_finite() && *delta > 0.0) => {
                Err(format!("expected a finite delta above 0, got {delta}"))
            }
            Self::KlDivergence | Self::Cosine if last.is_none() => {
                Err(format!("expected the last layer to give a vector, got {output} for a sample"))
            }
            _ => Ok(()),
        }
    }

    /// How much each of the samples with these targets (N, ..) counts in a mean of the loss: the number of its targets
    /// (of those that are not ignored; with class weights the sum of their classes' weights), or 1 where it has one
    /// loss as a whole. A step's gradient is divided by the sum of the samples' weights times this.
    pub fn counts(&self, targets: &HostTensor) -> Vec<f64> {
        match self {
            Self::CrossEntropy(settings) => settings.counts(targets, true),
            _ => vec![1.0; samples(targets)],
        }
    }

    /// The same for the other statistics: class weights play no part.
    pub(crate) fn metric_counts(&self, targets: &HostTensor) -> Vec<f64> {
        match self {
            Self::CrossEntropy(settings) => settings.counts(targets, false),
            _ => vec![1.0; samples(targets)],
        }
    }

    /// Appends the losses (N) of `output` (N, ..) against `target` (N, ..), then the other statistics' values (N) in
    /// the order of [`statistic_names`].
    pub(super) fn values(&self, graph: &mut Graph, output: ValueId, target: ValueId) -> Result<Vec<ValueId>> {
        graph.scoped("loss", |graph| match self {
            Self::CrossEntropy(settings) => settings.values(graph, output, target),
            Self::BinaryCrossEntropy { pos_weight } => Ok(vec![
                elements::binary_cross_entropy(graph, output, target, pos_weight)?,
                elements::binary_accuracy(graph, output, target)?,
            ]),
            Self::MeanSquaredError => Ok(vec![graph.apply(MeanSquaredError, &[output, target])?]),
            Self::MeanAbsoluteError => Ok(vec![elements::absolute(graph, output, target)?]),
            Self::Huber { delta } => Ok(vec![elements::huber(graph, output, target, *delta)?]),
            Self::KlDivergence => Ok(vec![elements::kl_divergence(graph, output, target)?]),
            Self::Cosine => Ok(vec![elements::cosine(graph, output, target)?]),
            Self::CosineEmbedding { margin } => Ok(vec![elements::cosine_embedding(graph, output, target, *margin)?]),
        })
    }

    /// What a user wants to see of `output`: probabilities for classes, else the values.
    pub(super) fn prediction(&self, graph: &mut Graph, output: ValueId) -> Result<ValueId> {
        match self {
            Self::CrossEntropy(_) | Self::KlDivergence => graph.apply(Softmax, &[output]),
            Self::BinaryCrossEntropy { .. } => graph.apply(Activation::Sigmoid, &[output]),
            _ => Ok(output),
        }
    }
}

/// Checks for a loss between numbers that the model gives the targets' shape.
fn check_numbers(output: &Shape, target: &TensorType) -> Result<(), String> {
    if target.dtype != DType::F32 {
        return Err(format!("expected numbers (f32) as targets, got {target}; for classes take cross-entropy"));
    }
    if *output != target.shape {
        return Err(format!("expected the last layer to give the target's shape {}, got {output}", target.shape));
    }
    Ok(())
}

/// Checks for a loss between two vectors that the model gives them, and that the target is one label.
fn check_pairs(margin: f32, output: &Shape, target: &TensorType) -> Result<(), String> {
    if !matches!(output.dims(), [2, _]) {
        return Err(format!("expected the last layer to give two vectors, [2, D], got {output} for a sample"));
    }
    let one = target.shape.rank() == 0 || (target.dtype == DType::F32 && *target.shape.dims() == [1]);
    if !one {
        return Err(format!(
            "expected one class index (0 apart, 1 alike) or one number (-1 apart, 1 alike) as a sample's target, got {target}"
        ));
    }
    if !(-1.0..=1.0).contains(&margin) {
        return Err(format!("expected a margin from -1 to 1, got {margin}"));
    }
    Ok(())
}

/// The number of samples with these targets.
fn samples(targets: &HostTensor) -> usize {
    targets.shape().dims().first().copied().unwrap_or(0)
}
