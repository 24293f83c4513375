//! Whole graphs around a model: training, evaluation, prediction.
//!
//! Inputs stand in a fixed order: `input` (N, ..), `target` (N, ..), `weight` (N). A row of weight 0 counts for nothing,
//! which is how a short micro-batch is padded.

use super::{Loss, Mode, Model};
use crate::error::{Error, Result};
use crate::graph::{Accumulator, Graph, SAMPLE_INPUT, TARGET_INPUT, WEIGHT_INPUT};
use crate::op::{ValueId, WeightedSum};
use crate::tensor::{Shape, TensorType};

/// The name of [`prediction_graph`]'s output.
pub const PREDICTION: &str = "prediction";

/// The graph of a training step for `micro_batch` samples: losses, statistics as [`super::statistic_names`] lists them, and
/// the sums Σ wₛ ∇ℓₛ of the gradients. `target` is one sample's.
///
/// # Errors
/// When the micro-batch is empty, a layer cannot work, or model, loss and target do not go together.
pub fn training_graph(model: &dyn Model, loss: &Loss, target: &TensorType, micro_batch: usize) -> Result<Graph> {
    let (mut graph, losses, weights) = measured(model, loss, target, micro_batch, Mode::Train)?;
    graph.accumulate_gradients(losses, weights)?;
    Ok(graph)
}

/// The same without gradients and in [`Mode::Inference`].
///
/// # Errors
/// As [`training_graph`].
pub fn evaluation_graph(model: &dyn Model, loss: &Loss, target: &TensorType, micro_batch: usize) -> Result<Graph> {
    Ok(measured(model, loss, target, micro_batch, Mode::Inference)?.0)
}

/// The graph that predicts for `micro_batch` samples: the only input is `input`, the output `prediction` holds softmax
/// probabilities (cross-entropy) or the model's values.
///
/// # Errors
/// When the micro-batch is empty or a layer cannot work.
pub fn prediction_graph(model: &dyn Model, loss: &Loss, micro_batch: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    let y = forward(&mut graph, model, micro_batch, Mode::Inference)?;
    let prediction = loss.prediction(&mut graph, y)?;
    graph.output(PREDICTION, prediction);
    Ok(graph)
}

/// A graph with its statistics; the losses (N) and weights (N).
fn measured(
    model: &dyn Model,
    loss: &Loss,
    target: &TensorType,
    micro_batch: usize,
    mode: Mode,
) -> Result<(Graph, ValueId, ValueId)> {
    let mut graph = Graph::new();
    let y = forward(&mut graph, model, micro_batch, mode)?;
    loss.check(&Shape::from(&graph.shape(y).dims()[1..]), target)?;
    let target = graph.input(TARGET_INPUT, batched(target, micro_batch));
    let weights = graph.input(WEIGHT_INPUT, TensorType::f32([micro_batch]));
    let values = loss.values(&mut graph, y, target)?;
    for (index, &value) in values.iter().enumerate() {
        let sum = graph.scoped("loss", |graph| graph.apply(WeightedSum, &[value, weights]))?;
        graph.accumulate(Accumulator::Statistic(index), sum);
    }
    Ok((graph, values[0], weights))
}

fn forward(graph: &mut Graph, model: &dyn Model, micro_batch: usize, mode: Mode) -> Result<ValueId> {
    if micro_batch == 0 {
        return Err(Error::invalid("micro_batch", "expected at least 1 sample, got 0"));
    }
    let x = graph.input(SAMPLE_INPUT, batched(&model.input(), micro_batch));
    let y = model.forward(graph, x, mode)?;
    let shape = graph.shape(y);
    if shape.dims().first() != Some(&micro_batch) {
        return Err(Error::shape("model", format!("expected an output (N, ..) with N = {micro_batch}, got {shape}")));
    }
    Ok(y)
}

fn batched(sample: &TensorType, batch: usize) -> TensorType {
    TensorType { shape: sample.shape.batched(batch), dtype: sample.dtype }
}
