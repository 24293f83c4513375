//! Losses on devices: their values and gradients are those written down by hand in f64, and the mean is taken over what a
//! step counts as a whole, however it is divided.

use std::sync::Arc;

use everygpu::data::Batch;
use everygpu::error::Result;
use everygpu::graph::{Graph, Init};
use everygpu::nn::{Loss, Mode, Model};
use everygpu::op::{MatMul, Reshape, ValueId};
use everygpu::optim::{Optimizer, Schedule};
use everygpu::tensor::{HostTensor, TensorType};
use everygpu::train::{Split, StepRecord, Task, TrainOptions};

use crate::training::*;

/// Inputs (N, T·C), or (N, C) where there are no positions, that are the logits (N, T, C) times a parameter of one element,
/// `scale`: with scale 1 a test chooses the logits, and the gradient is Σ logits·∂loss/∂logits.
struct Logits {
    sample: Vec<usize>,
}

impl Model for Logits {
    fn input(&self) -> TensorType {
        TensorType::f32([self.sample.iter().product::<usize>()])
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let &[n, features] = graph.shape(x).dims() else { unreachable!("inputs are rows") };
        let scale = graph.parameter("scale", [1, 1], Init::Ones)?;
        let column = graph.apply(Reshape([n * features, 1].into()), &[x])?;
        let scaled = graph.apply(MatMul::default(), &[column, scale])?;
        graph.apply(Reshape([&[n], &self.sample[..]].concat().into()), &[scaled])
    }
}

/// One step of plain gradient descent of rate 1 from scale 1, the samples divided over two devices as `shards` says, in
/// micro-batches of 2: the mean loss and accuracy, and the mean gradient.
fn step(
    loss: Loss,
    sample: &[usize],
    inputs: &[f32],
    targets: HostTensor,
    weights: &[f32],
    shards: [usize; 2],
) -> StepRecord {
    let n = weights.len();
    let split = Split::Weights(shards.map(|rows| rows as f64).to_vec());
    let options =
        TrainOptions { optimizer: Optimizer::sgd(0.0), schedule: Schedule::constant(1.0), split, ..options(n) };
    let target = TensorType { shape: targets.shape().dims()[1..].to_vec().into(), dtype: targets.dtype() };
    let task = Task { model: Arc::new(Logits { sample: sample.to_vec() }), loss, target };
    let inputs = HostTensor::f32([n, sample.iter().product()], inputs.to_vec()).unwrap();
    let batch = Arc::new(Batch { inputs, targets, weights: weights.to_vec() });
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let record = trainer.step_on(&batch, 1).unwrap();
    assert_eq!(record.shards, shards);
    let scale = agreed_weights(&mut trainer)[0].1[0];
    assert!((f64::from(1.0 - scale).abs() - record.gradient_norm).abs() < 1e-6, "{scale} {record:?}");
    record
}

/// Logits (0, a) with which label 0 has this loss: ln(1 + eᵃ).
fn logits(loss: f64) -> [f32; 2] {
    [0.0, loss.exp_m1().ln() as f32]
}

/// Four tokens with the losses 4, 1, 1 and 1, cut into samples of 1 or 2 tokens: 7/4, not the mean of the devices' means.
#[test]
fn the_loss_is_the_mean_over_tokens() {
    let inputs: Vec<f32> = [4.0, 1.0, 1.0, 1.0].into_iter().flat_map(logits).collect();
    // Label 0 has ∂loss/∂a = p₁ = 1 − exp(−loss).
    let gradient = [4.0_f64, 1.0, 1.0, 1.0].map(|l| -(-l).exp_m1() * f64::from(logits(l)[1])).iter().sum::<f64>() / 4.0;
    for (tokens, shards) in [(1, [1, 3]), (2, [1, 1]), (2, [0, 2])] {
        let n = 4 / tokens;
        let targets = HostTensor::u32([n, tokens], vec![0; 4]).unwrap();
        let record = step(Loss::CrossEntropy, &[tokens, 2], &inputs, targets, &vec![1.0; n], shards);
        assert!((record.loss - 1.75).abs() < 1e-6, "{record:?}");
        assert_eq!(record.accuracy, Some(0.0));
        assert!((record.gradient_norm - gradient).abs() < 1e-6, "{gradient} {record:?}");
    }
}

/// A sample's weight counts once for each of its tokens: (3·(4 + 1) + 1·(1 + 2))/(3·2 + 1·2).
#[test]
fn a_weight_counts_for_each_token() {
    let inputs: Vec<f32> = [4.0, 1.0, 1.0, 2.0, 9.0, 9.0].into_iter().flat_map(logits).collect();
    let targets = HostTensor::u32([3, 2], vec![0; 6]).unwrap();
    let record = step(Loss::CrossEntropy, &[2, 2], &inputs, targets, &[3.0, 1.0, 0.0], [1, 2]);
    assert!((record.loss - 18.0 / 8.0).abs() < 1e-6, "{record:?}");
}
