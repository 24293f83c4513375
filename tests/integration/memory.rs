//! The bytes that a device holds are those that the plan predicts, no more after many epochs, and none in the end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use everygpu::data::Dataset;
use everygpu::error::Error;
use everygpu::gpu::{Adapter, Device};
use everygpu::nn::Sequential;
use everygpu::nn::layers::BatchNorm;
use everygpu::optim::{Optimizer, UpdatePlan};
use everygpu::plan::{Layout, Plan, Storage};
use everygpu::predict::{Predictor, on_first};
use everygpu::tensor::HostTensor;
use everygpu::train::{Compression, Flow, MicroBatchSize, Observer, Progress, Split, Task, TrainOptions, Trainer};
use everygpu::tune::{End, Tuning, tune};

use crate::simulated::{Fault, Faulty, Kind, Phase};
use crate::training::*;

fn task() -> Task {
    Task::classification(
        Sequential::new([1, 6, 6]).conv2d(4, 3, 1).relu().max_pool2d(2).flatten().linear(16).tanh().linear(3),
    )
}

/// The same with batch norm, whose sums are handed out in f32.
fn normed() -> Task {
    let model = Sequential::new([1, 6, 6]).conv2d(4, 3, 1).layer(BatchNorm::of(2)).relu();
    Task::classification(model.max_pool2d(2).flatten().linear(16).tanh().linear(3))
}

fn data() -> Arc<dyn Dataset> {
    Arc::new(classes(27, &[1, 6, 6], 3, 2))
}

/// Bytes of a model's buffers on `device`, and what the lead has beside them.
fn standing(device: &Device, layout: &Arc<Layout>, options: &TrainOptions, exchanges: bool) -> (u64, u64) {
    let storage = Storage::new(layout, task().statistics().len(), true, exchanges)
        .compressed(options.gradient_compression)
        .timed(device.has_clock())
        .footprint()
        .bytes();
    let update = UpdatePlan::new(&options.update_rule(), layout, device.target()).unwrap();
    (storage, update.storage(layout).footprint().bytes())
}

/// Bytes of the training and the evaluation plan of `task` for micro-batches of `rows`.
fn plans(device: &Device, task: &Task, layout: &Arc<Layout>, rows: usize) -> (u64, u64) {
    let bytes = |graph| Plan::new(&graph, layout.clone(), device.target()).unwrap().footprint().bytes();
    (bytes(task.training(rows).unwrap()), bytes(task.evaluation(rows).unwrap()))
}

#[test]
fn the_ledger_is_what_the_plan_predicts() {
    for adapter in adapters() {
        for (optimizer, ema_decay) in [
            (Optimizer::sgd(0.0), None),
            (Optimizer::sgd(0.9), Some(0.9)),
            (Optimizer::adamw(), None),
            (Optimizer::lamb(), Some(0.9)),
        ] {
            for (weights, max_binding, gradient_compression, task) in [
                (&[1.0][..], ONE_BUCKET, Compression::None, task()),
                (&[1.0], 4096, Compression::F16, task()),
                (&[3.0, 1.0], ONE_BUCKET, Compression::Bf16, task()),
                (&[3.0, 1.0], ONE_BUCKET, Compression::Bf16, normed()),
                (&[0.0, 1.0, 3.0], 4096, Compression::None, task()),
                (&[0.0, 1.0, 3.0], 4096, Compression::F16, normed()),
            ] {
                let devices: Vec<_> = weights.iter().map(|_| open(&adapter, None)).collect();
                let options = TrainOptions {
                    split: Split::Weights(weights.to_vec()),
                    optimizer,
                    gradient_compression,
                    ema_decay,
                    epochs: 1,
                    ..options(8)
                };
                let layout = layout(&task, max_binding);
                let mut trainer =
                    trainer_with(&devices, &task, &options, &layout, |_, worker| Box::new(worker)).unwrap();
                let sizes = trainer.coordinator().micro_batches().to_vec();
                let predicted = |evaluates: bool| {
                    let bytes = |(index, device): (usize, &Arc<Device>)| {
                        let (storage, update) = standing(device, &layout, &options, weights.len() > 1);
                        let lead = if index == 0 { update } else { 0 };
                        let (training, evaluation) = match sizes[index] {
                            0 => (0, 0),
                            rows => plans(device, &task, &layout, rows),
                        };
                        storage + lead + training + if evaluates { evaluation } else { 0 }
                    };
                    devices.iter().enumerate().map(bytes).collect::<Vec<u64>>()
                };
                let in_use = || devices.iter().map(|d| d.bytes_in_use()).collect::<Vec<_>>();
                let what = format!("{}, {optimizer:?}, {weights:?}, {gradient_compression:?}", adapter.label());
                assert_eq!(in_use(), predicted(false), "{what}: before training");
                trainer.fit(&data(), None, &mut Recorder::default()).unwrap();
                assert_eq!(in_use(), predicted(false), "{what}: after training");
                trainer.evaluate(&data()).unwrap();
                assert_eq!(in_use(), predicted(true), "{what}: after evaluating");
                trainer.snapshot().unwrap();
                assert_eq!(in_use(), predicted(true), "{what}: after a snapshot");
                drop(trainer);
                assert_eq!(in_use(), vec![0; devices.len()], "{what}: in the end");
            }
        }
    }
}

/// Notes the devices' bytes after each epoch.
struct Ledger {
    devices: Vec<Arc<Device>>,
    bytes: Vec<Vec<u64>>,
}

impl Observer for Ledger {
    fn observe(&mut self, progress: &Progress<'_>, _: &mut Trainer) -> everygpu::error::Result<Flow> {
        if matches!(progress, Progress::Epoch(_)) {
            self.bytes.push(self.devices.iter().map(|d| d.bytes_in_use()).collect());
        }
        Ok(Flow::Continue)
    }
}

#[test]
fn live_bytes_are_flat_over_fifty_epochs() {
    let devices = devices(2);
    let options = TrainOptions { epochs: 50, ..options(8) };
    let mut trainer = trainer_on(&devices, &task(), &options);
    let mut ledger = Ledger { devices, bytes: Vec::new() };
    trainer.fit(&data(), Some(&data()), &mut ledger).unwrap();
    assert_eq!(ledger.bytes.len(), 50);
    assert!(ledger.bytes.iter().all(|bytes| *bytes == ledger.bytes[0]), "{:?}", ledger.bytes);
    assert!(ledger.bytes[0].iter().all(|bytes| *bytes > 0));
}

/// The error that a trainer on one device of `limit` bytes starts with, or the trainer and its device.
fn limited(limit: u64, options: &TrainOptions) -> Result<(Trainer, Arc<Device>), Error> {
    let device = open(&adapters()[0], Some(limit));
    let layout = layout(&task(), ONE_BUCKET);
    let trainer = trainer_with(std::slice::from_ref(&device), &task(), options, &layout, |_, worker| Box::new(worker))?;
    Ok((trainer, device))
}

#[test]
fn a_limit_makes_micro_batches_smaller() {
    let options = TrainOptions { epochs: 2, ..options(16) };
    let (device, layout) = (&devices(1)[0], layout(&task(), ONE_BUCKET));
    let (storage, update) = standing(device, &layout, &options, false);
    for (fits, wanted) in [(16, 16), (9, 8), (8, 8), (4, 4), (1, 1)] {
        let limit = storage + update + plans(device, &task(), &layout, fits).0;
        let (mut trainer, device) = limited(limit, &options).unwrap();
        assert_eq!(trainer.coordinator().micro_batches(), [wanted], "room for {fits} rows");
        // Validation has only what training leaves it, and gives it back.
        trainer.fit(&data(), Some(&data()), &mut Recorder::default()).unwrap();
        assert!(device.bytes_in_use() <= limit);
        let loss = trainer.evaluate(&data()).unwrap().loss();
        let (mut unlimited, _) = limited(u64::MAX, &options).unwrap();
        unlimited.fit(&data(), None, &mut Recorder::default()).unwrap();
        let expected = unlimited.evaluate(&data()).unwrap().loss();
        assert!((loss - expected).abs() < 1e-5, "room for {fits} rows: {loss} {expected}");
    }
    // What is trained in small pieces is the same.
    let train_under = |limit| {
        let (mut trainer, _) = limited(limit, &TrainOptions { epochs: 5, ..options.clone() }).unwrap();
        trainer.fit(&data(), None, &mut Recorder::default()).unwrap();
        agreed_weights(&mut trainer)
    };
    let (small, large) = (train_under(storage + update + plans(device, &task(), &layout, 1).0), train_under(u64::MAX));
    assert!(distance(&small, &large) < 5e-6, "{:.1e}", distance(&small, &large));
}

#[test]
fn what_does_not_fit_at_all_is_named() {
    let (device, layout, options) = (&devices(1)[0], layout(&task(), ONE_BUCKET), options(16));
    let (storage, update) = standing(device, &layout, &options, false);
    let one_row = storage + update + plans(device, &task(), &layout, 1).0;
    for (limit, buffer) in [(100, "parameters 0"), (storage + 100, "state 0 of bucket 0"), (one_row - 1, "sizes")] {
        match limited(limit, &options).map(drop) {
            Err(Error::OutOfMemory { buffer: named, limit: Some(at), in_use, bytes, .. }) => {
                assert_eq!((named.as_str(), at), (buffer, limit));
                assert!(in_use + bytes > limit);
            }
            other => panic!("a limit of {limit}: {other:?}"),
        }
    }
    let rows = TrainOptions { micro_batch: MicroBatchSize::Rows(16), ..options };
    assert!(matches!(limited(one_row - 1, &rows), Err(Error::OutOfMemory { .. })));
}

/// A device that cannot hold the model is left out; the others train, and the user is told.
#[test]
fn a_device_without_the_memory_is_left_out() {
    let (small, large) = (open(&adapters()[0], Some(1000)), open(&adapters()[0], None));
    for order in [[0, 1], [1, 0]] {
        let both = [small.clone(), large.clone()];
        let devices: Vec<_> = order.iter().map(|&i: &usize| both[i].clone()).collect();
        let mut trainer = trainer_on(&devices, &task(), &TrainOptions { epochs: 1, ..options(8) });
        let mut recorder = Recorder::default();
        trainer.fit(&data(), None, &mut recorder).unwrap();
        let left_out = order.iter().position(|i| *i == 0).unwrap();
        assert_eq!(recorder.lost, [left_out]);
        assert!(recorder.errors[0].contains("out of memory: parameters 0"), "{:?}", recorder.errors);
        assert_eq!(recorder.steps[0].shards[left_out], 0);
        assert!(recorder.rolled_back.is_empty());
    }
    assert_eq!((small.bytes_in_use(), large.bytes_in_use()), (0, 0));
}

/// An adapter whose bindings are too small for a parameter is left out, in training, tuning and prediction; with no
/// other one, the message has the parameter and the largest limit.
#[test]
fn an_adapter_that_cannot_bind_a_parameter_is_left_out() {
    let task = Task::classification(Sequential::new([600]).linear(7500).named("wide").relu().linear(3));
    let samples: Arc<dyn Dataset> = Arc::new(classes(8, &[600], 3, 2));
    let options = TrainOptions { epochs: 1, ..options(8) };
    let adapters = adapters();
    let (small, large) = (adapters[0].clone().capped(17 << 20), adapters[adapters.len() - 1].clone());
    let over = "parameter wide.weight needs 18000000 bytes (17.2 MiB), but the adapter's max_storage_buffer_binding_size is \
                17825792 bytes (17.0 MiB); make the layer smaller, or use an adapter with a larger limit";
    let start = |adapters: &[Adapter]| Trainer::builder(task.clone(), options.clone()).adapters(adapters).start();
    let train = |adapters: &[Adapter], left_out: usize| {
        let mut trainer = start(adapters).unwrap();
        assert!(trainer.rejected().is_empty(), "{:?}", trainer.rejected());
        let mut recorder = Recorder::default();
        trainer.fit(&samples, None, &mut recorder).unwrap();
        assert_eq!(recorder.lost, [left_out]);
        assert!(recorder.errors[0].ends_with(over), "{:?}", recorder.errors);
        assert_eq!((recorder.steps[0].shards[left_out], recorder.steps[0].shards[1 - left_out]), (0, 8));
        agreed_weights(&mut trainer)
    };
    train(&[large.clone(), small.clone()], 1);
    let both = [small.clone(), large];
    let weights = train(&both, 0);
    let mut predictor = on_first(&both, |adapter| Predictor::new(adapter, &task, &weights, 8)).unwrap();
    let inputs = HostTensor::f32([2, 600], vec![0.5; 1200]).unwrap();
    assert_eq!(predictor.predict(&inputs).unwrap().shape().dims(), [2, 3]);

    let tuning = Tuning {
        task: task.clone(),
        options: options.clone(),
        data: samples.clone(),
        adapters: both.to_vec(),
        replicas: 1,
        memory_limit: None,
        snapshot: None,
        seconds: 0.001,
    };
    let report = tune(&tuning, &mut |_| {}).unwrap();
    assert_eq!((report.adapters[0].sweep.end, report.adapters[0].sweep.knee), (End::Limit, None));
    assert!(report.adapters[1].sweep.knee.is_some());

    let error = start(&[adapters[0].clone().capped((17 << 20) - 4096), small]).unwrap_err().to_string();
    assert!(error.ends_with(over), "the largest limit: {error}");
}

/// A device whose memory holds its own rows takes over those of one that is lost: in pieces.
#[test]
fn rows_beyond_the_memory_are_taken_over_in_pieces() {
    let (device, layout, options) = (&devices(1)[0], layout(&task(), ONE_BUCKET), options(16));
    let (storage, update) = standing(device, &layout, &options, true);
    let small = open(&adapters()[0], Some(storage + update + plans(device, &task(), &layout, 8).0));
    let large = open(&adapters()[0], None);
    for (left, lost) in [(0, 1), (1, 0)] {
        let mut both = [large.clone(), large.clone()];
        both[left] = small.clone();
        let struck = Arc::new(AtomicU64::new(0));
        let gone = Fault { phase: Phase::Gradients, call: 2, kind: Kind::Error };
        let mut trainer = trainer_with(&both, &task(), &options, &layout, move |index, worker| {
            let faults = if index == lost { vec![gone.clone()] } else { Vec::new() };
            Box::new(Faulty::new(Box::new(worker), faults, struck.clone()))
        })
        .unwrap();
        assert_eq!(trainer.coordinator().micro_batches(), [8, 8]);
        let mut recorder = Recorder::default();
        trainer.fit(&data(), None, &mut recorder).unwrap();
        assert_eq!(recorder.lost, [lost]);
        let last = recorder.steps.iter().rfind(|step| step.samples == 16).unwrap();
        assert_eq!((last.shards[left], trainer.coordinator().micro_batches()[left]), (16, 8));
    }
}
