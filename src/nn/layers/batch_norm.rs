//! Batch norm.

use std::sync::Arc;

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::{Accumulator, Graph, Init, ParameterId, Running};
use crate::nn::Mode;
use crate::op::{self, Add, BatchNormSums, Emit, Math, Mul, Reshape, Sub, ValueId};
use crate::tensor::Shape;

/// Normalises each channel of samples \[C\], \[C, T\] or \[C, H, W\], then `weight` (C), ones, and `bias` (C), zeros;
/// all named as in PyTorch.
///
/// In [`Mode::Train`] mean and variance are those of `group` consecutive samples of the batch, as if each group were a
/// batch of its own: so they do not depend on how a batch is divided over devices, which get whole groups. In
/// [`Mode::Inference`] they are `running_mean` and `running_var`, which every step moves towards the mean and the
/// variance (divided by the number of elements) of all its samples together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNorm {
    /// How far a step moves the running statistics, from 0 to 1.
    pub momentum: f32,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there are `weight` and `bias`.
    pub affine: bool,
    /// Samples that share mean and variance.
    pub group: usize,
}

impl Default for BatchNorm {
    /// PyTorch's settings; groups of 32 samples, which is what a GPU had for its batch norm where large batches were
    /// first shown to train well (Goyal et al., "Accurate, Large Minibatch SGD", 2017), and still lets a batch of 64 be
    /// divided.
    fn default() -> Self {
        Self { momentum: 0.1, epsilon: 1e-5, affine: true, group: 32 }
    }
}

/// The running statistics of a layer.
struct Statistics {
    steps: ParameterId,
    mean: (ParameterId, ValueId),
    variance: (ParameterId, ValueId),
}

impl BatchNorm {
    /// The default with groups of `group` samples.
    pub fn of(group: usize) -> Self {
        Self { group, ..Self::default() }
    }

    fn statistics(&self, graph: &mut Graph, channels: usize) -> Result<Statistics> {
        let momentum = self.momentum;
        let (steps, _) = graph.running("num_batches_tracked", [1], Init::Zeros, Running::Steps)?;
        let mean = graph.running("running_mean", [channels], Init::Zeros, Running::Mean { momentum, steps })?;
        let running = Running::Variance { momentum, steps, mean: mean.0 };
        let variance = graph.running("running_var", [channels], Init::Ones, running)?;
        Ok(Statistics { steps, mean, variance })
    }

    fn train(&self, graph: &mut Graph, inputs: &[ValueId], running: &Statistics) -> Result<ValueId> {
        let span = graph.shape(inputs[0]).dims()[2..].iter().product();
        let op = op::BatchNorm { group: self.group, epsilon: self.epsilon, affine: self.affine };
        let outputs = graph.emit_all(Arc::new(op), inputs)?;
        let sums = BatchNormSums { group: self.group, span };
        let sums = graph.emit_all(Arc::new(sums), &[outputs[1], running.mean.1])?;
        for (id, sum) in [running.steps, running.mean.0, running.variance.0].into_iter().zip(sums) {
            graph.accumulate(Accumulator::Gradient(id), sum);
        }
        Ok(outputs[0])
    }

    /// (x − mean) · weight / √(variance + ε) + bias
    fn infer(&self, graph: &mut Graph, inputs: &[ValueId], running: &Statistics) -> Result<ValueId> {
        let mut along = vec![1; graph.shape(inputs[0]).rank() - 1];
        along[0] = graph.shape(running.mean.1)[0];
        let along = Shape::from(along);
        let shifted = graph.apply(Math::Offset(self.epsilon.into()), &[running.variance.1])?;
        let deviation = graph.apply(Math::Sqrt, &[shifted])?;
        let mut scale = graph.apply(Math::Reciprocal, &[deviation])?;
        if self.affine {
            scale = graph.apply(Mul, &[scale, inputs[1]])?;
        }
        let mut broadcast = |value| graph.apply(Reshape(along.clone()), &[value]);
        let (mean, scale) = (broadcast(running.mean.1)?, broadcast(scale)?);
        let bias = if self.affine { Some(broadcast(inputs[2])?) } else { None };
        let centred = graph.apply(Sub, &[inputs[0], mean])?;
        let scaled = graph.apply(Mul, &[centred, scale])?;
        bias.map_or(Ok(scaled), |bias| graph.apply(Add, &[scaled, bias]))
    }
}

impl Layer for BatchNorm {
    fn kind(&self) -> &'static str {
        "batch_norm"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let error = |message| Err(Error::shape(self.kind(), message));
        let channels = match *graph.shape(x).dims() {
            [_, channels, ..] => channels,
            _ => return error("expected samples of shape [channels, ..], got a number".to_owned()),
        };
        if !(0.0..=1.0).contains(&self.momentum) {
            return error(format!("expected a momentum from 0 to 1, got {}", self.momentum));
        }
        if !self.epsilon.is_finite() || self.epsilon < 0.0 {
            return error(format!("expected an epsilon of 0 or more, got {}", self.epsilon));
        }
        if self.group == 0 {
            return error("expected a group of 1 sample or more, got 0".to_owned());
        }
        let mut inputs = vec![x];
        if self.affine {
            inputs.push(graph.parameter("weight", [channels], Init::Ones)?);
            inputs.push(graph.parameter("bias", [channels], Init::Zeros)?);
        }
        let running = self.statistics(graph, channels)?;
        match mode {
            Mode::Train => self.train(graph, &inputs, &running),
            Mode::Inference | Mode::Decode(_) => self.infer(graph, &inputs, &running),
        }
    }
}
