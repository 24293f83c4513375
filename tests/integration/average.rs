//! The moving average of the weights, and groups of parameters, in training: what validation, checkpoints, evaluation
//! and prediction go by, and what the loss of a device leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everygpu::data::Dataset;
use everygpu::nn::Sequential;
use everygpu::optim::{Group, Groups, Optimizer};
use everygpu::predict::Predictor;
use everygpu::tensor::HostTensor;
use everygpu::train::{Split, Task, TrainOptions, saved_weights};

use crate::simulated::{Fault, Faulty, Kind, Phase};
use crate::training::*;

fn task() -> Task {
    Task::classification(Sequential::new([7]).linear(16).tanh().linear(5))
}

fn data() -> Arc<dyn Dataset> {
    Arc::new(classes(27, &[7], 5, 1))
}

/// Three epochs of four steps. Deterministic, so that two runs are equal to the bit.
fn averaging() -> TrainOptions {
    let optimizer = Optimizer::adamw();
    TrainOptions { epochs: 3, optimizer, split: Split::Even, deterministic: true, ema_decay: Some(0.9), ..options(8) }
}

fn bits(weights: &Weights) -> Vec<u32> {
    weights.iter().flat_map(|(_, v)| v).map(|v| v.to_bits()).collect()
}

#[test]
fn validation_goes_by_the_average_and_leaves_the_weights_as_they_are() {
    let devices = devices(2);
    let plain = {
        let mut trainer = trainer_on(&devices, &task(), &TrainOptions { ema_decay: None, ..averaging() });
        trainer.fit(&data(), None, &mut Recorder::default()).unwrap();
        bits(&agreed_weights(&mut trainer))
    };
    let mut trainer = trainer_on(&devices, &task(), &averaging());
    let report = trainer.fit(&data(), Some(&data()), &mut Recorder::default()).unwrap();
    assert_eq!(bits(&agreed_weights(&mut trainer)), plain, "the average changes nothing else");
    let by_weights = trainer.evaluate(&data()).unwrap();
    let snapshot = trainer.snapshot().unwrap();
    let validated = report.last.unwrap().validation.unwrap();

    let mut other = trainer_on(&devices, &task(), &averaging());
    other.load_weights(&snapshot, false).unwrap();
    assert_eq!(other.evaluate(&data()).unwrap(), validated);
    other.load_weights(&snapshot, true).unwrap();
    assert_eq!(other.evaluate(&data()).unwrap(), by_weights);
    assert_ne!(by_weights, validated);
}

/// It starts as a copy of the initial weights: after a first step from the weights a to b it is 0.9·a + 0.1·b.
#[test]
fn the_average_starts_with_the_initial_weights() {
    let mut trainer = trainer_on(&devices(2), &task(), &averaging());
    let start = agreed_weights(&mut trainer);
    assert_eq!(saved_weights(&trainer.snapshot().unwrap(), false).unwrap(), start);
    train(&mut trainer, &data(), 1);
    let snapshot = trainer.snapshot().unwrap();
    let end = saved_weights(&snapshot, true).unwrap();
    assert_eq!(end, agreed_weights(&mut trainer));
    let mut expected = start.clone();
    for ((_, a), (_, b)) in expected.iter_mut().zip(&end) {
        a.iter_mut().zip(b).for_each(|(a, b)| *a = 0.9 * *a + 0.1 * b);
    }
    let error = distance(&saved_weights(&snapshot, false).unwrap(), &expected);
    assert!(error < 1e-6, "the average is off by {error:.1e}");
    assert!(distance(&start, &end) > 1e-3);
}

#[test]
fn predictions_go_by_the_average() {
    let mut trainer = trainer_on(&devices(1), &task(), &averaging());
    trainer.fit(&data(), None, &mut Recorder::default()).unwrap();
    let snapshot = trainer.snapshot().unwrap();
    let inputs = HostTensor::f32([3, 7], (0..21).map(|i| (i as f32).sin()).collect()).unwrap();
    let adapter = &adapters()[0];
    let restored = Predictor::restore(adapter, &task(), &snapshot, 2).unwrap().predict(&inputs).unwrap();
    let predict = |raw| {
        let weights = saved_weights(&snapshot, raw).unwrap();
        Predictor::new(adapter, &task(), &weights, 2).unwrap().predict(&inputs).unwrap()
    };
    assert_eq!(restored, predict(false));
    assert_ne!(restored, predict(true));
}

/// The first layer keeps its weights, and they are their own average, also where they are not the initial ones.
#[test]
fn frozen_layers_stay_and_are_their_own_average() {
    let list = vec![Group { frozen: true, ..Group::new("linear_1.*") }];
    let options = TrainOptions { groups: Groups { list, ..Groups::default() }, ..averaging() };
    let mut trainer = trainer_on(&devices(2), &task(), &options);
    let mut start = agreed_weights(&mut trainer);
    start.get_mut("linear_1.weight").unwrap()[3] += 1.0;
    trainer.set_weights(&start).unwrap();
    trainer.fit(&data(), Some(&data()), &mut Recorder::default()).unwrap();
    let snapshot = trainer.snapshot().unwrap();
    let (end, average) = (agreed_weights(&mut trainer), saved_weights(&snapshot, false).unwrap());
    for ((before, after), average) in start.iter().zip(&end).zip(&average) {
        let frozen = before.0.starts_with("linear_1.");
        assert_eq!(before == after, frozen, "{}", before.0);
        assert_eq!(before == average, frozen, "{}", before.0);
    }
}

/// The loss of the device that has the average, before the first step, in a step, and while it stands in for the
/// weights.
#[test]
fn the_average_survives_the_loss_of_its_device() {
    let options = averaging();
    let run = |fault: Option<Fault>| {
        let (devices, struck) = (devices(2), Arc::new(AtomicU64::new(0)));
        let (counter, expected) = (struck.clone(), u64::from(fault.is_some()));
        let mut trainer = trainer_with(&devices, &task(), &options, &layout(&task(), 512), move |index, worker| {
            let faults = if index == 0 { fault.iter().cloned().collect() } else { Vec::new() };
            Box::new(Faulty::new(Box::new(worker), faults, counter.clone()))
        })
        .unwrap();
        let mut recorder = Recorder::default();
        trainer.fit(&data(), Some(&data()), &mut recorder).unwrap();
        assert_eq!(struck.load(Ordering::SeqCst), expected, "the fault came");
        let snapshot = trainer.snapshot().unwrap();
        let [average, weights] = [false, true].map(|raw| saved_weights(&snapshot, raw).unwrap());
        assert_eq!(weights, agreed_weights(&mut trainer));
        (average, weights)
    };
    let (average, weights) = run(None);
    let buckets = layout(&task(), 512).buckets().len() as u64;
    for (phase, call) in [
        (Phase::Write, buckets + 1), // the average's first bucket
        (Phase::Read, 1),
        (Phase::Read, 4 * buckets + 1), // the weights, which the average is to take the place of
        (Phase::Gradients, 2),
        (Phase::MidUpdate, 3),
        (Phase::Evaluate, 1),
        (Phase::Write, 2 * buckets + 1), // the average's first bucket, in the place of the weights
        (Phase::Write, 3 * buckets + 1), // the weights' first bucket, after that
    ] {
        let (average_now, weights_now) = run(Some(Fault { phase, call, kind: Kind::Error }));
        let error = distance(&weights_now, &weights).max(distance(&average_now, &average));
        assert!(error < 1e-5, "{phase:?} {call}: off by {error:.1e}");
    }
}

#[test]
fn a_checkpoint_without_an_average_is_evaluated_but_not_gone_on_from_with_one() {
    let mut trainer = trainer_on(&devices(1), &task(), &TrainOptions { ema_decay: None, ..averaging() });
    train(&mut trainer, &data(), 2);
    let snapshot = trainer.snapshot().unwrap();
    assert_eq!(saved_weights(&snapshot, false).unwrap(), saved_weights(&snapshot, true).unwrap());
    let error = trainer_on(&devices(1), &task(), &averaging()).restore(&snapshot).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "optimizer.ema_decay: the checkpoint was made with no moving average of the weights, this run has a moving \
             average of the weights; put it back as it was, or start a new run"
        ),
        "{error}"
    );
}
