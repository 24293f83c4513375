//! The cosine embedding loss on devices: a network that sees both things of a pair, against values and gradients by
//! hand.

use std::sync::Arc;

use everygpu::data::Batch;
use everygpu::nn::layers::Linear;
use everygpu::nn::{Loss, Sequential, initial_values};
use everygpu::optim::{Optimizer, Schedule};
use everygpu::rng::Stream;
use everygpu::tensor::{HostTensor, TensorType};
use everygpu::train::{MicroBatchSize, Split, Task, TrainOptions};

use crate::training::*;

const IN: usize = 3;
const OUT: usize = 4;
const PAIRS: usize = 7;
const MARGIN: f64 = 0.1;

/// The mean loss over weighted pairs of what the matrix (OUT, IN) makes of both things of a pair.
fn mean_loss(matrix: &[f64], inputs: &[f32], alike: &[bool], weights: &[f32]) -> f64 {
    let embed = |x: &[f32]| -> Vec<f64> {
        matrix.chunks(IN).map(|row| row.iter().zip(x).map(|(w, &x)| w * f64::from(x)).sum()).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (mut losses, mut total) = (0.0, 0.0);
    for ((pair, &alike), &weight) in inputs.chunks(2 * IN).zip(alike).zip(weights) {
        let (a, b) = (embed(&pair[..IN]), embed(&pair[IN..]));
        let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
        losses += f64::from(weight) * if alike { 1.0 - cosine } else { (cosine - MARGIN).max(0.0) };
        total += f64::from(weight);
    }
    losses / total
}

/// One step of plain gradient descent of rate 1, on ±1 and on class indices, however the pairs are divided over two
/// devices.
#[test]
fn the_step_is_the_one_by_hand() {
    let mut stream = Stream::new(9, "pairs");
    let inputs: Vec<f32> = (0..PAIRS * 2 * IN).map(|_| stream.normal() as f32).collect();
    let alike = [true, false, false, true, false, false, true];
    let weights = [1.0, 2.0, 0.5, 0.0, 1.0, 3.0, 1.5];
    let labels = HostTensor::u32([PAIRS], alike.map(u32::from).to_vec()).unwrap();
    let signs = HostTensor::f32([PAIRS, 1], alike.map(|alike| if alike { 1.0 } else { -1.0 }).to_vec()).unwrap();
    for targets in [labels, signs] {
        let target = TensorType { shape: targets.shape().dims()[1..].to_vec().into(), dtype: targets.dtype() };
        let model = Sequential::new([2, IN]).layer(Linear { bias: false, ..Linear::new(OUT) });
        let task = Task { model: Arc::new(model), loss: Loss::CosineEmbedding { margin: MARGIN as f32 }, target };
        let start = initial_values(&task.training(1).unwrap(), options(PAIRS).seed).into_iter().next().unwrap().1;
        let matrix: Vec<f64> = start.iter().map(|&w| f64::from(w)).collect();
        let at = |element: usize, shift: f64| {
            let mut moved = matrix.clone();
            moved[element] += shift;
            mean_loss(&moved, &inputs, &alike, &weights)
        };
        for shards in [[7, 0], [3, 4]] {
            let options = TrainOptions {
                optimizer: Optimizer::sgd(0.0),
                schedule: Schedule::constant(1.0),
                split: Split::Weights(shards.map(|rows| rows as f64).to_vec()),
                micro_batch: MicroBatchSize::Rows(2),
                ..options(PAIRS)
            };
            let inputs = HostTensor::f32([PAIRS, 2, IN], inputs.clone()).unwrap();
            let batch = Arc::new(Batch { inputs, targets: targets.clone(), weights: weights.to_vec() });
            let mut trainer = trainer_on(&devices(2), &task, &options);
            let record = trainer.step_on(&batch, 1).unwrap();
            assert!((record.loss - at(0, 0.0)).abs() < 1e-6, "{shards:?}: {record:?}, expected {}", at(0, 0.0));
            let end = agreed_weights(&mut trainer).into_iter().next().unwrap().1;
            for (element, (&before, &after)) in start.iter().zip(&end).enumerate() {
                let gradient = (at(element, 1e-6) - at(element, -1e-6)) / 2e-6;
                let found = f64::from(before - after);
                assert!((found - gradient).abs() < 1e-6, "{shards:?}, {element}: {found}, expected {gradient}");
            }
            assert!(record.gradient_norm > 0.05, "the step sees the gradient: {record:?}");
        }
    }
}
