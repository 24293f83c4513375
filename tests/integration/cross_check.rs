//! Cross-checks of healthy devices and of one that computes wrongly, over random networks and splits; devices without
//! samples and without the memory for any.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use everygpu::data::{Dataset, TensorDataset};
use everygpu::gpu::Device;
use everygpu::nn::Sequential;
use everygpu::nn::layers::BatchNorm;
use everygpu::rng::Stream;
use everygpu::tensor::HostTensor;
use everygpu::train::{MicroBatchSize, Split, Splitter, Task, TrainOptions, Trainer, Worker};

use crate::simulated::{self, Faulty, Kind, Phase, speed};
use crate::training::*;
use crate::workers::{data, fault, three_epochs};

/// A trainer on real `devices`, `wrong` of which computes wrongly from its gradients in the first cross-check on.
fn trainer(devices: &[Arc<Device>], task: &Task, options: &TrainOptions, wrong: Option<usize>) -> Trainer {
    let splitter =
        Splitter::new(&options.split, options.batch, devices.len(), true).unwrap().in_groups(task.group().unwrap());
    let wrap = move |index, worker| -> Box<dyn Worker> {
        let call = if splitter.full()[index] > 0 { 2 } else { 1 };
        let faults = if wrong == Some(index) { vec![fault(Phase::Gradients, call, &Kind::Wrong)] } else { Vec::new() };
        Box::new(Faulty::new(Box::new(worker), faults, Arc::default()))
    };
    trainer_with(devices, task, options, &layout(task, ONE_BUCKET), wrap).expect("it starts")
}

/// Small networks with batch norm of random groups among dense layers or convolutions, in random splits.
fn random_case(seed: u64) -> (Task, TrainOptions, Arc<dyn Dataset>, String) {
    let mut stream = Stream::new(seed, "case");
    let mut below = |limit: u64| stream.below(limit) as usize;
    let images = below(3) == 0;
    let shape: &[usize] = if images { &[2, 3, 3] } else { &[6] };
    let mut model = Sequential::new(shape.to_vec());
    let mut groups = Vec::new();
    for _ in 0..1 + below(2) {
        model = if images { model.conv2d(3, 3, 1) } else { model.linear(5 + below(6)) };
        if below(4) > 0 {
            let most = if below(2) == 0 { 6 } else { 40 };
            let group = 1 + below(most);
            model = model.layer(BatchNorm { affine: below(2) == 0, ..BatchNorm::of(group) });
            groups.push(group);
        }
        model = if below(2) == 0 { model.relu() } else { model.tanh() };
    }
    let task = Task::classification(if images { model.flatten().linear(3) } else { model.linear(3) });
    let batch = 2 + below(70);
    let mut weights: Vec<f64> = (0..3).map(|_| below(4) as f64).collect();
    weights[below(3)] += 1.0;
    let group = task.group().unwrap();
    let micro_batch =
        if below(2) == 0 { MicroBatchSize::Auto } else { MicroBatchSize::Rows(group.min(batch) + below(4)) };
    let options = TrainOptions {
        split: Split::Weights(weights.clone()),
        cross_check_every: 1,
        micro_batch,
        epochs: 1,
        ..options(batch)
    };
    let data = Arc::new(classes(batch + 1 + below(batch as u64), shape, 3, seed));
    (task, options, data, format!("seed {seed}: groups {groups:?}, batch {batch} by {weights:?}, {micro_batch:?}"))
}

#[test]
fn healthy_devices_agree_and_a_wrong_one_is_found_whatever_the_split() {
    let devices = devices(3);
    for seed in 0..4 {
        let (task, options, data, what) = random_case(seed);
        let lost = |wrong| {
            let mut recorder = Recorder::default();
            let outcome = trainer(&devices, &task, &options, wrong).fit(&data, None, &mut recorder);
            outcome.unwrap_or_else(|error| panic!("{what}, wrong: {wrong:?}: {error}"));
            recorder.lost
        };
        assert_eq!(lost(None), Vec::<usize>::new(), "{what}");
        let wrong = (seed % 3) as usize;
        assert_eq!(lost(Some(wrong)), [wrong], "{what}");
    }
}

/// 36 samples in groups of 32: the second device's micro-batch is 4 samples, half of what is compared.
#[test]
fn a_share_that_is_shorter_than_the_check_is_grouped_as_elsewhere() {
    let task = Task::classification(Sequential::new([6]).linear(8).layer(BatchNorm::of(32)).relu().linear(3));
    let data: Arc<dyn Dataset> = Arc::new(classes(72, &[6], 3, 1));
    let devices = devices(3);
    let run = |count: usize, cross_check_every| {
        let options = TrainOptions { cross_check_every, epochs: 2, ..options(36) };
        let mut trainer = trainer(&devices[..count], &task, &options, None);
        let mut recorder = Recorder::default();
        trainer.fit(&data, None, &mut recorder).unwrap();
        assert!(recorder.lost.is_empty(), "{:?}", recorder.errors);
        agreed_weights(&mut trainer)
    };
    for count in [2, 3] {
        assert_eq!(run(count, 1), run(count, 0), "a cross-check changes nothing");
    }
}

/// Batches of 159 as 96 + 63, and a last one of 128, which is 64 + 64: one more than the second device's micro-batch.
#[test]
fn a_short_batch_is_in_whole_groups() {
    let task = Task::classification(Sequential::new([6]).linear(8).layer(BatchNorm::of(32)).tanh().linear(3));
    let data: Arc<dyn Dataset> = Arc::new(classes(159 + 128, &[6], 3, 1));
    let devices = devices(2);
    let run = |weights: &[f64]| {
        let options = TrainOptions { split: Split::Weights(weights.to_vec()), epochs: 2, ..options(159) };
        let mut trainer = trainer(&devices[..weights.len()], &task, &options, None);
        let mut recorder = Recorder::default();
        trainer.fit(&data, None, &mut recorder).unwrap();
        (recorder.steps.iter().map(|step| step.shards.clone()).collect::<Vec<_>>(), agreed_weights(&mut trainer))
    };
    let ((_, expected), (shards, found)) = (run(&[1.0]), run(&[3.0, 2.0]));
    assert_eq!(shards[..2], [[96, 63], [64, 64]]);
    let error = distance(&found, &expected);
    assert!(error < 1e-5, "{error:.1e}");
}

/// Of a network that has learned all there is, the gradient is nothing but rounding.
#[test]
fn devices_agree_about_what_is_learned() {
    let rows: Vec<Vec<f32>> = (1..=24_usize)
        .map(|row| {
            (0..simulated::FEATURES).map(|feature| if row >> (feature % 5) & 1 == 1 { 1.0 } else { -0.5 }).collect()
        })
        .collect();
    let targets = rows.iter().map(|row| row[0] - 2.0 * row[1] + row[2]).collect();
    let inputs = HostTensor::f32([24, simulated::FEATURES], rows.concat()).unwrap();
    let data = TensorDataset::regression(inputs, HostTensor::f32([24, 1], targets).unwrap()).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(data);
    let options = TrainOptions { cross_check_every: 1, epochs: 300, ..options(24) };
    let speeds = [speed(0.0, 1.0), speed(0.0, 1.0)];
    let (mut trainer, _) =
        simulated::trainer(&options, &speeds, &[(1, fault(Phase::Gradients, 1, &Kind::Rounded))]).unwrap();
    let mut recorder = Recorder::default();
    trainer.fit(&data, None, &mut recorder).unwrap();
    let last = recorder.steps.last().unwrap();
    assert!(last.loss < 1e-10, "{last:?}");
}

/// A loss that is infinite on every device is no disagreement, and samples without weight say nothing.
#[test]
fn samples_that_say_nothing_are_passed_over() {
    let devices = devices(3);
    let options = TrainOptions { cross_check_every: 1, shuffle: false, epochs: 1, ..options(24) };
    let numbers = |target: f32, weights: &dyn Fn(usize) -> f32| -> Arc<dyn Dataset> {
        let inputs = (0..24 * 8).map(|i| (i % 7) as f32).collect();
        let targets = (0..24).map(|i| target * (1.0 + i as f32 / 24.0)).collect();
        let data = TensorDataset::regression(
            HostTensor::f32([24, 8], inputs).unwrap(),
            HostTensor::f32([24, 1], targets).unwrap(),
        );
        Arc::new(data.unwrap().with_weights((0..24).map(weights).collect()).unwrap())
    };
    let mut recorder = Recorder::default();
    let outcome =
        trainer(&devices[..2], &simulated::task(), &options, None).fit(&numbers(1.5e38, &|_| 1.0), None, &mut recorder);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("none of the updates of 1 steps was applied"), "{error}");
    assert!(!recorder.steps[0].applied);

    let last = numbers(1.0, &|i| if i < 20 { 0.0 } else { 1.0 });
    let mut recorder = Recorder::default();
    trainer(&devices, &simulated::task(), &options, Some(0)).fit(&last, None, &mut recorder).unwrap();
    assert_eq!(recorder.lost, [0]);
}

/// It has samples neither of its own nor, without the memory, of others.
#[test]
fn a_device_without_samples_is_not_lost_for_want_of_memory() {
    let faults = |device| vec![(device, fault(Phase::Prepare, 1, &Kind::OutOfMemory))];
    let checked = TrainOptions { split: Split::Weights(vec![1.0, 1.0, 0.0]), cross_check_every: 1, ..three_epochs() };
    let speeds: Vec<_> = (0..3).map(|_| speed(0.0, 1.0)).collect();
    let (mut trainer, struck) = simulated::trainer(&checked, &speeds, &faults(2)).unwrap();
    let mut recorder = Recorder::default();
    trainer.fit(&data(), None, &mut recorder).unwrap();
    assert_eq!((struck.load(Ordering::SeqCst), recorder.lost.len()), (1, 0), "{:?}", recorder.errors);

    // Two samples for three devices: the last gets none, and is soon measured.
    let measured = TrainOptions { split: Split::Speed, epochs: 20, ..options(2) };
    let (mut trainer, struck) = simulated::trainer(&measured, &speeds, &faults(2)).unwrap();
    let mut recorder = Recorder::default();
    trainer.fit(&data(), None, &mut recorder).unwrap();
    assert_eq!((struck.load(Ordering::SeqCst), recorder.lost.len()), (1, 0), "{:?}", recorder.errors);
}
