//! Losses between numbers, made of elementwise ops: predictions and targets (N, ..) of one shape, or pairs of vectors
//! and what they are to be → one loss a sample (N). Targets have no gradient.

use crate::error::Result;
use crate::graph::Graph;
use crate::op::{
    Activation, Add, Binary, Div, Embedding, Emit, LogSoftmax, Math, Mul, Reshape, Slice, Sub, ValueId, reduce,
};
use crate::tensor::{DType, HostTensor};

/// What is added to a squared length, as in PyTorch's `CosineEmbeddingLoss`, so that a vector of zeros has a direction.
const LENGTH_EPSILON: f32 = 1e-12;

/// The means (N) of x (N, ..) over a sample's elements.
fn mean(graph: &mut Graph, x: ValueId) -> Result<ValueId> {
    let axes: Vec<usize> = (1..graph.shape(x).rank()).collect();
    if axes.is_empty() { Ok(x) } else { reduce::mean(graph, x, &axes, false) }
}

/// |prediction − target|, elementwise.
fn distance(graph: &mut Graph, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    let difference = graph.apply(Sub, &[prediction, target])?;
    graph.apply(Math::Abs, &[difference])
}

fn scalar(graph: &mut Graph, name: &str, value: f32) -> Result<ValueId> {
    Ok(graph.constant(name, HostTensor::f32([1], vec![value])?))
}

pub(super) fn absolute(graph: &mut Graph, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    let distance = distance(graph, prediction, target)?;
    mean(graph, distance)
}

/// c (d − c/2) with c = min(d, δ): d²/2 up to δ, and δ (d − δ/2) beyond.
pub(super) fn huber(graph: &mut Graph, prediction: ValueId, target: ValueId, delta: f32) -> Result<ValueId> {
    let distance = distance(graph, prediction, target)?;
    let near = graph.apply(Math::Clamp(0.0.into(), delta.into()), &[distance])?;
    let half = graph.apply(Math::Scale(0.5.into()), &[near])?;
    let rest = graph.apply(Sub, &[distance, half])?;
    let losses = graph.apply(Mul, &[near, rest])?;
    mean(graph, losses)
}

/// p y softplus(−x) + (1 − y) softplus(x): no term cancels another, so that a right answer's small loss keeps its
/// digits.
pub(super) fn binary_cross_entropy(
    graph: &mut Graph,
    logits: ValueId,
    target: ValueId,
    pos_weight: &[f32],
) -> Result<ValueId> {
    let negated = graph.apply(Math::Neg, &[logits])?;
    let if_positive = graph.apply(Activation::Softplus, &[negated])?;
    let if_negative = graph.apply(Activation::Softplus, &[logits])?;
    let positive = match *pos_weight {
        [1.0] => target,
        [weight] => graph.apply(Math::Scale(weight.into()), &[target])?,
        _ => {
            let weights = HostTensor::f32([pos_weight.len()], pos_weight.to_vec())?;
            let weights = graph.constant("pos_weight", weights);
            graph.apply(Mul, &[target, weights])?
        }
    };
    let negative = one_minus(graph, target)?;
    let first = graph.apply(Mul, &[if_positive, positive])?;
    let second = graph.apply(Mul, &[if_negative, negative])?;
    let losses = graph.apply(Add, &[first, second])?;
    mean(graph, losses)
}

/// The part of a sample's elements whose logit is above 0 where the target is above ½, and not where it is not.
pub(super) fn binary_accuracy(graph: &mut Graph, logits: ValueId, target: ValueId) -> Result<ValueId> {
    let (zero, half) = (scalar(graph, "zero", 0.0)?, scalar(graph, "half", 0.5)?);
    let predicted = graph.apply(Binary::Greater, &[logits, zero])?;
    let wanted = graph.apply(Binary::Greater, &[target, half])?;
    let right = graph.apply(Binary::Equal, &[predicted, wanted])?;
    mean(graph, right)
}

pub(super) fn kl_divergence(graph: &mut Graph, logits: ValueId, target: ValueId) -> Result<ValueId> {
    let log_probabilities = graph.apply(LogSoftmax, &[logits])?;
    // 0 log 0 counts as 0.
    let positive = graph.apply(Math::Clamp(f32::MIN_POSITIVE.into(), f32::MAX.into()), &[target])?;
    let log_target = graph.apply(Math::Log, &[positive])?;
    let difference = graph.apply(Sub, &[log_target, log_probabilities])?;
    let terms = graph.apply(Mul, &[difference, target])?;
    let axes: Vec<usize> = (1..graph.shape(terms).rank()).collect();
    reduce::sum(graph, terms, &axes, false)
}

pub(super) fn cosine(graph: &mut Graph, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    let cosine = cosines(graph, prediction, target)?;
    let losses = one_minus(graph, cosine)?;
    mean(graph, losses)
}

/// p (1 − cos) + (1 − p) max(0, cos − margin), for vectors that are to be alike (p = 1) or apart (p = 0).
pub(super) fn cosine_embedding(graph: &mut Graph, pairs: ValueId, target: ValueId, margin: f32) -> Result<ValueId> {
    let shape = graph.shape(pairs).clone(); // (N, 2, D)
    let first = graph.apply(Slice::along(&shape, 1, 0..1), &[pairs])?;
    let second = graph.apply(Slice::along(&shape, 1, 1..2), &[pairs])?;
    let cosine = cosines(graph, first, second)?; // (N, 1)
    let alike = alike(graph, target)?; // (N, 1)
    let if_alike = one_minus(graph, cosine)?;
    let beyond = graph.apply(Math::Offset((-margin).into()), &[cosine])?;
    let if_apart = graph.apply(Activation::Relu, &[beyond])?;
    let apart = one_minus(graph, alike)?;
    let first = graph.apply(Mul, &[alike, if_alike])?;
    let second = graph.apply(Mul, &[apart, if_apart])?;
    let losses = graph.apply(Add, &[first, second])?;
    mean(graph, losses)
}

/// 1 for pairs that are to be alike, else 0, (N, 1): from class indices (N), or from 1 and −1, (N) or (N, 1).
fn alike(graph: &mut Graph, target: ValueId) -> Result<ValueId> {
    let samples = graph.shape(target)[0];
    if graph.type_of(target).dtype == DType::U32 {
        let table = graph.constant("alike", HostTensor::f32([2, 1], vec![0.0, 1.0])?);
        return graph.apply(Embedding, &[table, target]);
    }
    let sign = graph.apply(Reshape([samples, 1].into()), &[target])?;
    let half = graph.apply(Math::Scale(0.5.into()), &[sign])?;
    graph.apply(Math::Offset(0.5.into()), &[half])
}

/// 1 − x.
fn one_minus(graph: &mut Graph, x: ValueId) -> Result<ValueId> {
    let negated = graph.apply(Math::Neg, &[x])?;
    graph.apply(Math::Offset(1.0.into()), &[negated])
}

/// The cosines (..) between vectors (.., D).
fn cosines(graph: &mut Graph, a: ValueId, b: ValueId) -> Result<ValueId> {
    let last = graph.shape(a).rank() - 1;
    let product = graph.apply(Mul, &[a, b])?;
    let dot = reduce::sum(graph, product, &[last], false)?;
    let mut length = |x| {
        let squares = graph.apply(Math::Square, &[x])?;
        let square = reduce::sum(graph, squares, &[last], false)?;
        let square = graph.apply(Math::Offset(LENGTH_EPSILON.into()), &[square])?;
        graph.apply(Math::Sqrt, &[square])
    };
    let (first, second) = (length(a)?, length(b)?);
    let lengths = graph.apply(Mul, &[first, second])?;
    graph.apply(Div, &[dot, lengths])
}
