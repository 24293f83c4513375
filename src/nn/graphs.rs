//! Whole graphs around a model: training, evaluation, prediction.
//!
//! Inputs stand in a fixed order: `input` (N, ..), `target` (N, ..), `weight` (N). A row of weight 0 counts for
//! nothing, which is how a short micro-batch is padded.

use super::{Decode, Loss, Mode, Model};
use crate::error::{Error, Result};
use crate::graph::{Accumulator, Graph, SAMPLE_INPUT, TARGET_INPUT, WEIGHT_INPUT};
use crate::op::{ValueId, WeightedSum};
use crate::tensor::{DType, Shape, TensorType};

/// The name of [`prediction_graph`]'s output.
pub(crate) const PREDICTION: &str = "prediction";

/// The graph of a training step for `micro_batch` samples: losses, the loss's statistics, and the sums Σ wₛ ∇ℓₛ of the
/// gradients. `target` is one sample's.
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
pub(crate) fn evaluation_graph(
    model: &dyn Model,
    loss: &Loss,
    target: &TensorType,
    micro_batch: usize,
) -> Result<Graph> {
    Ok(measured(model, loss, target, micro_batch, Mode::Inference)?.0)
}

/// The graph that predicts for `micro_batch` samples: the only input is `input`, the output `prediction` holds softmax
/// probabilities (cross-entropy) or the model's values.
///
/// # Errors
/// When the micro-batch is empty or a layer cannot work.
pub(crate) fn prediction_graph(model: &dyn Model, loss: &Loss, micro_batch: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    let y = forward(&mut graph, model, micro_batch, Mode::Inference)?;
    let prediction = loss.prediction(&mut graph, y)?;
    graph.output(PREDICTION, prediction);
    Ok(graph)
}

/// The graph that predicts what comes behind one token of a sequence, after the tokens before it have run one by one:
/// inputs `input` u32 (1, 1), `position` u32 \[1\] (from 0) and `length` u32 \[1\] (position + 1), output `prediction`
/// (1, 1, vocabulary). Keys and values of the attention layers are carried from run to run (a KV cache; Pope et al.,
/// "Efficiently Scaling Transformer Inference", 2022).
///
/// # Errors
/// When the model does not work on tokens, or not one by one.
pub fn decoding_graph(model: &dyn Model, loss: &Loss) -> Result<Graph> {
    let input = model.input();
    let ([capacity], DType::U32, true) = (input.shape.dims(), input.dtype, model.decodes()) else {
        let message = format!("expected a model of tokens u32[T] whose layers work token by token, it takes {input}");
        return Err(Error::shape("model", message));
    };
    let mut graph = Graph::new();
    let x = graph.input(SAMPLE_INPUT, TensorType::u32([1, 1]));
    let position = graph.input("position", TensorType::u32([1]));
    let length = graph.input("length", TensorType::u32([1]));
    let y = model.forward(&mut graph, x, Mode::Decode(Decode { capacity: *capacity, position, length }))?;
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
