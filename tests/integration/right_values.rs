//! Small cases whose right values are known by hand, each with the wrong one that a common mistake gives.

use std::sync::Arc;

use everygpu::data::{Dataset, TensorDataset};
use everygpu::error::Result;
use everygpu::graph::{Graph, Init};
use everygpu::nn::{Mode, Model};
use everygpu::op::{MatMul, ValueId};
use everygpu::optim::{Optimizer, Schedule};
use everygpu::tensor::{HostTensor, Named, TensorType};
use everygpu::train::{Split, Tally, Task, TrainOptions};

use crate::training::*;

/// w·x without a bias: with a target t the loss is (w·x − t)², its gradient 2(w·x − t)x.
struct Product {
    features: usize,
}

impl Model for Product {
    fn input(&self) -> TensorType {
        TensorType::f32([self.features])
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let w = graph.parameter("w", [1, self.features], Init::Ones)?;
        graph.apply(MatMul { transpose_b: true, ..MatMul::default() }, &[x, w])
    }
}

/// Plain gradient descent of rate 1 over one epoch: w after it, on devices that divide the batch by `split`, and the
/// record of the steps.
fn descend(
    start: &[f32],
    inputs: &[f32],
    targets: &[f32],
    options: TrainOptions,
    devices: usize,
) -> (Vec<f32>, Recorder) {
    let options =
        TrainOptions { epochs: 1, optimizer: Optimizer::sgd(0.0), schedule: Schedule::constant(1.0), ..options };
    let task = Task::regression(Product { features: start.len() }, [1]);
    let data: Arc<dyn Dataset> = Arc::new(in_order(inputs, targets, start.len(), &options));
    let mut trainer = trainer_on(&crate::training::devices(devices), &task, &options);
    trainer.set_weights(&Named::of([("w", start.to_vec())]).unwrap()).unwrap();
    let mut recorder = Recorder::default();
    trainer.fit(&data, None, &mut recorder).unwrap();
    (agreed_weights(&mut trainer)["w"].clone(), recorder)
}

fn weighted(batch: usize, weights: &[f64]) -> TrainOptions {
    TrainOptions { split: Split::Weights(weights.to_vec()), ..options(batch) }
}

/// Shards {1,1,1} and {5}: (2 + 2 + 2 + 50)/4 = 14. A mean of means is (2 + 50)/2 = 26.
#[test]
fn unequal_shards_give_the_mean_over_samples() {
    let (w, record) = descend(&[1.0], &[1.0, 1.0, 1.0, 5.0], &[0.0; 4], weighted(4, &[3.0, 1.0]), 2);
    assert_eq!(record.steps[0].shards, [3, 1]);
    assert_eq!(1.0 - w[0], 14.0);
    assert_eq!(record.steps[0].gradient_norm, 14.0);
    assert_eq!(record.steps[0].loss, 28.0 / 4.0);
}

/// Losses {4} and {1,1,1} over two devices: 7/4, not (4 + 1)/2.
#[test]
fn the_loss_is_the_mean_over_samples() {
    let (_, record) = descend(&[1.0], &[2.0, 1.0, 1.0, 1.0], &[0.0; 4], weighted(4, &[1.0, 3.0]), 2);
    assert_eq!(record.steps[0].shards, [1, 3]);
    assert_eq!(record.steps[0].loss, 1.75);
}

/// 5 batches of one sample, 4 a window: the second update sees one sample and divides by 1.
#[test]
fn the_last_window_is_divided_by_what_it_holds() {
    // Gradient 2(w − t)/4 over four samples t = 0 moves w from 1 to 1 − 2 = −1; the fifth, t = 0, to −1 + 2 = 1.
    let options = TrainOptions { accumulate: 4, ..weighted(1, &[1.0, 1.0]) };
    let (w, record) = descend(&[1.0], &[1.0; 5], &[0.0; 5], options, 2);
    assert_eq!(record.steps.iter().map(|s| s.samples).collect::<Vec<_>>(), [4, 1]);
    assert_eq!(w, [1.0]); // divided by 4 it would be −0.5
    assert_eq!(record.steps[1].gradient_norm, 2.0);
}

/// Gradients (3,4) and (−3,4), averaged to (0,4), clipped to norm 1: (0,1). Clipped before averaging: (0,0.8).
#[test]
fn clipping_comes_after_averaging() {
    let clipped = TrainOptions { clip_norm: Some(1.0), ..weighted(2, &[1.0, 1.0]) };
    let (w, record) = descend(&[0.0, 0.0], &[3.0, 4.0, -3.0, 4.0], &[-0.5, -0.5], clipped, 2);
    assert_eq!(record.steps[0].shards, [1, 1]);
    assert_eq!(record.steps[0].gradient_norm, 4.0);
    assert_eq!(w, [-0.0, -1.0]);
}

/// Inputs of 0 have a gradient of 0 and a loss of t², which tells the samples of each step: (1 + 4)/2, (9 + 16)/2, 25.
#[test]
fn without_shuffling_batches_are_the_samples_in_the_order_of_the_data() {
    let targets = HostTensor::f32([5, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let data = TensorDataset::regression(HostTensor::f32([5, 1], vec![0.0; 5]).unwrap(), targets).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(data);
    let task = Task::regression(Product { features: 1 }, [1]);
    let losses = |shuffle, count| {
        let options = TrainOptions { epochs: 2, shuffle, ..options(2) };
        let mut recorder = Recorder::default();
        trainer_on(&devices(count), &task, &options).fit(&data, None, &mut recorder).unwrap();
        recorder.steps.iter().map(|step| step.loss).collect::<Vec<_>>()
    };
    for count in [1, 2] {
        assert_eq!(losses(false, count), [2.5, 12.5, 25.0, 2.5, 12.5, 25.0]);
    }
    assert_ne!(losses(true, 1), losses(false, 1));
}

#[test]
fn nine_samples_over_four_devices_are_3_2_2_2() {
    let inputs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let (w, record) = descend(&[1.0], &inputs, &[0.0; 9], options(9), 4);
    assert_eq!(record.steps[0].shards, [3, 2, 2, 2]);
    let squares: f32 = inputs.iter().map(|x| x * x).sum();
    assert!((w[0] - (1.0 - 2.0 * squares / 9.0)).abs() < 1e-4, "{w:?}");
}

#[test]
fn two_samples_over_four_devices_train() {
    let (w, record) = descend(&[1.0], &[1.0, 3.0], &[0.0, 0.0], options(2), 4);
    assert_eq!(record.steps[0].shards, [1, 1, 0, 0]);
    assert_eq!(w, [1.0 - (2.0 + 18.0) / 2.0]);
}

/// Accuracies .7 and .8 over 256 each and .9 over 10: 0.75287; the mean of the batches' would be 0.8.
#[test]
fn metrics_are_pooled_over_samples() {
    let mut tally = Tally::default();
    for (accuracy, samples) in [(0.7, 256.0), (0.8, 256.0), (0.9, 10.0)] {
        tally.add(&[0.0, accuracy * samples], samples, samples);
    }
    assert!((tally.accuracy().unwrap() - 0.75287).abs() < 5e-6, "{tally:?}");
}

/// The same through a trainer: 2 full batches and a short one, whose mean must count by its 10 samples only.
#[test]
fn an_evaluation_pools_its_batches() {
    let task = Task::regression(Product { features: 1 }, [1]);
    let options = weighted(256, &[3.0, 1.0]);
    let (n, mut targets) = (522, vec![0.7_f32.sqrt(); 256]);
    targets.extend(vec![0.8_f32.sqrt(); 256]);
    targets.extend(vec![0.9_f32.sqrt(); 10]);
    let inputs = everygpu::tensor::HostTensor::f32([n, 1], vec![0.0; n]).unwrap();
    let targets = everygpu::tensor::HostTensor::f32([n, 1], targets).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(everygpu::data::TensorDataset::regression(inputs, targets).unwrap());
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let tally = trainer.evaluate(&data).unwrap();
    assert_eq!(tally.weight, 522.0);
    assert!((tally.loss() - 0.75287).abs() < 5e-6, "{tally:?}");
}
