//! Gradients that are not finite: the update is skipped everywhere, and a run of them ends the training.

use std::sync::Arc;

use everygpu::data::{Dataset, TensorDataset};
use everygpu::nn::Sequential;
use everygpu::optim::{Optimizer, Schedule, UpdateRule};
use everygpu::plan::Buffer;
use everygpu::tensor::HostTensor;
use everygpu::train::{Split, Task, TrainOptions};

use crate::optimizers::{Bench, small};
use crate::training::*;

fn bits(state: &[Weights]) -> Vec<u32> {
    state.iter().flatten().flat_map(|(_, v)| v).map(|v| v.to_bits()).collect()
}

/// Wherever it stands, one gradient that is not finite leaves every bit of weights and moments as it was.
#[test]
fn a_gradient_that_is_not_finite_changes_nothing_anywhere() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for optimizer in Optimizer::variants() {
            for clip in [None, Some(1.0)] {
                let rule = UpdateRule { clip_norm: clip, ema_decay: clip.map(|_| 0.5), ..optimizer.into() };
                let mut bench = Bench::new(&device, rule, small());
                let (start, good) = (bench.random("start", 1.0), bench.random("gradient", 1.0));
                bench.write(Buffer::Parameter, &start);
                let update = |bench: &mut Bench, gradients: &Weights, t| bench.update(gradients, 0.1, 2.0, t);
                assert_eq!(update(&mut bench, &good, 1).applied, 1);
                let before = bits(&bench.state());
                let last = good.len() - 1;
                for (parameter, element) in [(0, 0), (0, 956), (1, 32), (3, 0), (5, 1023), (last, 2)] {
                    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let mut bad = good.clone();
                        bad.get_mut(&format!("p{parameter}")).unwrap()[element] = value;
                        let outcome = update(&mut bench, &bad, 2);
                        assert_eq!(outcome.applied, 0, "{value} in element {element} of p{parameter}");
                        assert!(!outcome.norm.is_finite());
                        assert_eq!(bits(&bench.state()), before, "{value} in element {element} of p{parameter}");
                    }
                }
                assert_eq!(update(&mut bench, &good, 2).applied, 1);
                assert_ne!(bits(&bench.state()), before);
            }
        }
    }
}

/// Samples of 1e30 are finite, as data must be, but their squared error is not, nor is its gradient.
fn overflowing(n: usize, bad: &[usize]) -> Arc<dyn Dataset> {
    let mut x: Vec<f32> = (0..n).map(|i| 0.1 * i as f32).collect();
    bad.iter().for_each(|&i| x[i] = 1e30);
    let x = HostTensor::f32([n, 1], x).unwrap();
    Arc::new(TensorDataset::regression(x, HostTensor::f32([n, 1], vec![1.0; n]).unwrap()).unwrap())
}

#[test]
fn a_step_that_is_not_finite_is_skipped_everywhere_and_reported() {
    let task = Task::regression(Sequential::new([1]).linear(1), [1]);
    let options = TrainOptions {
        epochs: 2,
        split: Split::Weights(vec![3.0, 1.0]),
        schedule: Schedule::constant(0.01),
        optimizer: Optimizer::adamw(),
        nonfinite_limit: 3,
        ..options(4)
    };
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let mut recorder = Recorder::default();
    trainer.fit(&overflowing(16, &[5]), None, &mut recorder).unwrap();
    let skipped: Vec<bool> = recorder.steps.iter().map(|s| !s.applied).collect();
    assert_eq!(skipped.iter().filter(|s| **s).count(), 2, "one step an epoch holds the bad sample: {skipped:?}");
    for step in &recorder.steps {
        assert_eq!(step.applied, step.gradient_norm.is_finite());
        assert_eq!(step.applied, step.loss.is_finite());
    }
    assert_eq!((trainer.position().step, trainer.position().applied), (8, 6));
    let weights = agreed_weights(&mut trainer);
    assert!(weights.iter().all(|(_, v)| v.iter().all(|v| v.is_finite())));

    // Without the bad sample's batches the same run: a skipped step is as if it had not been, but for the rate's
    // schedule.
    let start = everygpu::nn::initial_values(&task.training(1).unwrap(), options.seed);
    assert!(distance(&weights, &start) > 0.0);
}

#[test]
fn a_run_of_steps_that_are_not_finite_ends_the_training() {
    let task = Task::regression(Sequential::new([1]).linear(1), [1]);
    let options = TrainOptions { nonfinite_limit: 3, ..options(4) };
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let before = agreed_weights(&mut trainer);
    let mut recorder = Recorder::default();
    let all: Vec<usize> = (0..16).collect();
    let error = trainer.fit(&overflowing(16, &all), None, &mut recorder).unwrap_err().to_string();
    assert!(error.contains("not finite in 3 updates in a row, up to step 2"), "{error}");
    assert_eq!(distance(&agreed_weights(&mut trainer), &before), 0.0);
    assert!(recorder.steps.iter().all(|s| !s.applied));
}
