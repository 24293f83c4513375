//! What is trained: a model with its loss, as the graphs that devices run.

use std::sync::Arc;

use crate::data::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::fleet::Graphs;
use crate::graph::Graph;
use crate::nn::{self, Loss, Model};
use crate::tensor::{Shape, TensorType};

/// A model, its loss and the type of one target.
///
/// ```
/// # use everygpu::prelude::*;
/// let digits = Task::classification(Sequential::new([1, 8, 8]).flatten().linear(10));
/// let line = Task::regression(Sequential::new([2]).linear(1), [1]);
/// # assert!(digits.training(1).is_ok() && line.training(1).is_ok());
/// ```
#[derive(Clone)]
pub struct Task {
    /// The network.
    pub model: Arc<dyn Model>,
    /// What is minimised.
    pub loss: Loss,
    /// Type of one sample's target.
    pub target: TensorType,
}

impl Task {
    /// A classifier with cross-entropy over class indices.
    pub fn classification(model: impl Model + 'static) -> Self {
        Self { model: Arc::new(model), loss: Loss::cross_entropy(), target: TensorType::u32([]) }
    }

    /// A regression with mean squared error over targets of this shape (without a batch dimension).
    pub fn regression(model: impl Model + 'static, target: impl Into<Shape>) -> Self {
        Self { model: Arc::new(model), loss: Loss::MeanSquaredError, target: TensorType::f32(target) }
    }

    /// Forward, loss and backward for `rows` samples.
    ///
    /// # Errors
    /// When the model does not work on its input.
    pub fn training(&self, rows: usize) -> Result<Graph> {
        nn::training_graph(self.model.as_ref(), &self.loss, &self.target, rows)
    }

    /// Consecutive samples of a batch that a device must run together: 1 without batch norm.
    ///
    /// # Errors
    /// When the model does not work on its input.
    pub fn group(&self) -> Result<usize> {
        Ok(self.training(1)?.group())
    }

    /// Forward and statistics for `rows` samples.
    ///
    /// # Errors
    /// When the model does not work on its input.
    pub fn evaluation(&self, rows: usize) -> Result<Graph> {
        nn::evaluation_graph(self.model.as_ref(), &self.loss, &self.target, rows)
    }

    /// Forward only, for `rows` samples.
    ///
    /// # Errors
    /// When the model does not work on its input.
    pub fn prediction(&self, rows: usize) -> Result<Graph> {
        nn::prediction_graph(self.model.as_ref(), &self.loss, rows)
    }

    /// Forward only, a token at a time. See [`nn::decoding_graph`].
    ///
    /// # Errors
    /// When the model does not work on tokens, or not one by one.
    pub fn decoding(&self) -> Result<Graph> {
        nn::decoding_graph(self.model.as_ref(), &self.loss)
    }

    /// Checks that the samples of `data` are what the model takes, and its targets, where they are in memory, what the
    /// loss does.
    ///
    /// # Errors
    /// When they are of another shape or type, or targets have values that the loss has no meaning for.
    pub fn check(&self, data: &dyn Dataset) -> Result<()> {
        let (input, target) = (self.model.input(), &self.target);
        if data.input_type() != input || data.target_type() != *target {
            let message = format!(
                "the model takes samples of {input} with targets of {target}, the data has {} with {}",
                data.input_type(),
                data.target_type()
            );
            return Err(Error::invalid("data", message));
        }
        let Some(targets) = data.all_targets() else { return Ok(()) };
        let output = nn::output_shape(self.model.as_ref())?;
        self.loss.check_targets(targets, output.dims().last().copied())
    }

    /// How much each sample of `batch` counts in a mean loss: its weight times what [`Loss::counts`] gives for its
    /// targets.
    pub fn weights(&self, batch: &Batch) -> Vec<f64> {
        weighted(self.loss.counts(&batch.targets), batch).collect()
    }

    /// What the sums over `batch` (its loss, its gradient) are divided by to give means: the sum of [`Task::weights`],
    /// in double precision. It is 0 when nothing in the batch counts.
    pub fn weight_sum(&self, batch: &Batch) -> f64 {
        weighted(self.loss.counts(&batch.targets), batch).sum()
    }

    /// The same for the statistics beside the loss.
    pub(crate) fn metric_weight_sum(&self, batch: &Batch) -> f64 {
        weighted(self.loss.metric_counts(&batch.targets), batch).sum()
    }

    /// What the statistics are: the loss first, then metrics.
    pub fn statistics(&self) -> &'static [&'static str] {
        nn::statistic_names(&self.loss)
    }
}

impl Graphs for Task {
    fn training(&self, rows: usize) -> Result<Graph> {
        Self::training(self, rows)
    }

    fn evaluation(&self, rows: usize) -> Result<Graph> {
        Self::evaluation(self, rows)
    }

    fn statistics(&self) -> usize {
        Self::statistics(self).len()
    }
}

fn weighted(counts: Vec<f64>, batch: &Batch) -> impl Iterator<Item = f64> {
    counts.into_iter().zip(&batch.weights).map(|(count, &weight)| count * f64::from(weight))
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("loss", &self.loss).field("target", &self.target).finish_non_exhaustive()
    }
}
