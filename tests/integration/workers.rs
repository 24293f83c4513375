//! Devices that fail, as the coordinator sees them through workers of a test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everygpu::data::Dataset;
use everygpu::error::Result;
use everygpu::nn::Sequential;
use everygpu::optim::Optimizer;
use everygpu::train::{Flow, Observer, Progress, Split, Task, TrainOptions, Trainer};

use crate::simulated::{self, Fault, Faulty, Kind, Phase, Speed, speed};
use crate::training::*;

/// Steps of an epoch: 4 full batches of 24 and a short one.
const SAMPLES: usize = 100;

pub fn data() -> Arc<dyn Dataset> {
    Arc::new(numbers(SAMPLES, simulated::FEATURES, 4).with_weights(uneven_weights(SAMPLES)).unwrap())
}

fn steady(devices: usize) -> Vec<Speed> {
    (0..devices).map(|_| speed(0.0, 1.0)).collect()
}

/// Reads the weights of every device now and then, and a snapshot, as a run folder does.
#[derive(Default)]
struct Reader {
    recorder: Recorder,
    /// Errors in reading, which were not passed on.
    unread: Vec<String>,
}

impl Observer for Reader {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        let flow = self.recorder.observe(progress, trainer)?;
        if let Progress::Step(record) = progress
            && record.step % 4 == 1
        {
            for device in 0..trainer.coordinator().alive().len() {
                if trainer.coordinator().alive()[device]
                    && let Err(error) = trainer.weights_of(device)
                {
                    self.unread.push(error.to_string());
                }
            }
            trainer.snapshot()?;
        }
        Ok(flow)
    }
}

struct Outcome {
    weights: Weights,
    reader: Reader,
    alive: Vec<bool>,
}

/// Three epochs of five steps with validation on three simulated devices.
fn run(options: &TrainOptions, devices: usize, faults: &[(usize, Fault)]) -> Outcome {
    let (mut trainer, struck) = simulated::trainer(options, &steady(devices), faults).expect("a device is left");
    let (data, held_out) = (data(), data());
    let mut reader = Reader::default();
    let report = trainer.fit(&data, Some(&held_out), &mut reader).unwrap_or_else(|error| panic!("{faults:?}: {error}"));
    assert_eq!(struck.load(Ordering::SeqCst), faults.len() as u64, "{faults:?}: not every fault came");
    assert_eq!((report.steps, report.stopped), (15, false), "{faults:?}");
    Outcome { weights: agreed_weights(&mut trainer), alive: trainer.coordinator().alive().to_vec(), reader }
}

pub fn three_epochs() -> TrainOptions {
    // Snapshots fall on an epoch's last step, before it is closed.
    TrainOptions { epochs: 3, verify_weights_every: 2, snapshot_every: 5, ..options(24) }
}

/// What a run with a fault must share with one without: the weights, to rounding (gradients are sums of f32 in another
/// grouping), and every step's loss over all of its samples.
fn same(faulty: &Outcome, plain: &Outcome, what: &str) {
    let error = distance(&faulty.weights, &plain.weights);
    assert!(error <= 2e-6, "{what}: the weights are off by {error:.1e}");
    let steps = |o: &Outcome| o.reader.recorder.steps.iter().map(|s| (s.step, s.samples)).collect::<Vec<_>>();
    assert_eq!(steps(faulty), steps(plain), "{what}");
    for (got, wanted) in faulty.reader.recorder.steps.iter().zip(&plain.reader.recorder.steps) {
        assert!((got.loss - wanted.loss).abs() <= 2e-6, "{what}: step {}: {} {}", got.step, got.loss, wanted.loss);
        assert_eq!(got.shards.iter().sum::<usize>(), got.samples, "{what}");
    }
}

pub fn fault(phase: Phase, call: u64, kind: &Kind) -> Fault {
    Fault { phase, call, kind: kind.clone() }
}

#[test]
fn training_survives_a_fault_in_every_phase_of_every_device() {
    let plain = run(&three_epochs(), 3, &[]);
    assert_eq!(plain.reader.recorder.epochs.len(), 3);
    assert_ne!(plain.reader.recorder.steps[0].loss, plain.reader.recorder.steps[14].loss);
    // (phase, calls before the first step, whether a device that does not lead makes such calls)
    let phases = [
        (Phase::Prepare, 1, true),
        (Phase::Gradients, 0, true),
        (Phase::MidStream, 0, true),
        (Phase::Evaluate, 0, true),
        (Phase::Update, 0, false),
        (Phase::MidUpdate, 0, false),
        (Phase::Write, 2, true),
        (Phase::Fingerprints, 0, true),
        (Phase::Read, 4, true),
        (Phase::Lead, 1, false),
    ];
    for kind in [Kind::Error, Kind::Lost, Kind::Invalid, Kind::OutOfMemory, Kind::Panic] {
        for (phase, before, followers) in phases {
            // A device without the memory to lead goes on as before: leading.rs.
            if matches!((&kind, phase), (Kind::OutOfMemory, Phase::Lead)) {
                continue;
            }
            for device in 0..if followers { 3 } else { 1 } {
                for nth in [1, 2, 5] {
                    // Some calls come once; the first of all is at the start, when nothing has been trained yet.
                    let single = matches!(phase, Phase::Prepare | Phase::Lead);
                    let call = match (phase, device, nth) {
                        (Phase::Evaluate, _, 5) => 9,
                        (Phase::Read, 1.., _) => nth,
                        (_, _, 1) if single => 1,
                        _ if single => continue,
                        _ => before + nth,
                    };
                    let what = format!("{kind:?} in call {call} of {phase:?} on device {device}");
                    let faulty = run(&three_epochs(), 3, &[(device, fault(phase, call, &kind))]);
                    same(&faulty, &plain, &what);
                    let recorder = &faulty.reader.recorder;
                    assert_eq!(recorder.lost, [device], "{what}");
                    assert!(recorder.errors[0].contains("injected"), "{what}: {:?}", recorder.errors);
                    assert_eq!(faulty.alive.iter().filter(|alive| !**alive).count(), 1, "{what}");
                    let at_start = single || (phase == Phase::Write && call <= 2);
                    assert_eq!(recorder.rolled_back.len(), usize::from(device == 0 && !at_start), "{what}");
                    let unread = usize::from(phase == Phase::Read && device > 0);
                    assert!(faulty.reader.unread.len() <= 1 && faulty.reader.unread.len() >= unread, "{what}");
                }
            }
        }
    }
}

#[test]
fn training_survives_faults_that_follow_from_one_another() {
    let plain = run(&three_epochs(), 3, &[]);
    let error = &Kind::Error;
    let cases: [(&str, Vec<(usize, Fault)>); 5] = [
        (
            "a follower fails while it takes over another's rows",
            vec![(1, fault(Phase::Gradients, 3, error)), (2, fault(Phase::Prepare, 2, error))],
        ),
        (
            "the lead fails while it takes over a follower's rows",
            vec![(1, fault(Phase::MidStream, 3, error)), (0, fault(Phase::Prepare, 2, &Kind::Panic))],
        ),
        (
            "the new lead fails when it is made the lead",
            vec![(0, fault(Phase::Update, 3, error)), (1, fault(Phase::Lead, 1, error))],
        ),
        (
            "the new lead fails while it is rolled back",
            vec![(0, fault(Phase::Update, 3, error)), (1, fault(Phase::Write, 2 + 2 * 2 + 3, error))],
        ),
        (
            "two followers in the same step",
            vec![(1, fault(Phase::Gradients, 7, error)), (2, fault(Phase::Gradients, 7, error))],
        ),
    ];
    for (what, faults) in cases {
        let faulty = run(&three_epochs(), 3, &faults);
        same(&faulty, &plain, what);
        assert_eq!(faulty.reader.recorder.lost.len(), 2, "{what}");
    }
}

/// The rows go to a device that had none before and must be prepared first, also when the fault is noticed between
/// steps.
#[test]
fn an_idle_device_takes_over() {
    let idle = |weights: &[f64]| TrainOptions { split: Split::Weights(weights.to_vec()), ..three_epochs() };
    let plain = run(&idle(&[0.0, 1.0]), 2, &[]);
    for (phase, call) in [(Phase::Gradients, 4), (Phase::Write, 9), (Phase::Evaluate, 3), (Phase::Read, 1)] {
        let faulty = run(&idle(&[0.0, 1.0]), 2, &[(1, fault(phase, call, &Kind::Error))]);
        same(&faulty, &plain, &format!("{phase:?}"));
        assert_eq!(faulty.reader.recorder.lost, [1]);
    }
    let faulty = run(&idle(&[1.0, 0.0]), 2, &[(0, fault(Phase::Gradients, 4, &Kind::Error))]);
    same(&faulty, &plain, "the lead");
}

#[test]
fn a_lost_sample_would_be_seen() {
    let plain = run(&three_epochs(), 3, &[]);
    let (mut trainer, _) = simulated::trainer(&three_epochs(), &steady(3), &[]).unwrap();
    let mut weights = uneven_weights(SAMPLES);
    weights[17] = 0.0;
    let data: Arc<dyn Dataset> = Arc::new(numbers(SAMPLES, simulated::FEATURES, 4).with_weights(weights).unwrap());
    trainer.fit(&data, None, &mut Recorder::default()).unwrap();
    assert!(distance(&agreed_weights(&mut trainer), &plain.weights) > 1e-4);
}

#[test]
fn why_the_only_device_failed_in_a_validation_is_told() {
    let (mut trainer, _) =
        simulated::trainer(&three_epochs(), &steady(1), &[(0, fault(Phase::Evaluate, 1, &Kind::Error))]).unwrap();
    let error = trainer.fit(&data(), Some(&data()), &mut Recorder::default()).unwrap_err().to_string();
    assert!(error.contains("injected fault in Evaluate"), "{error}");
}

#[test]
fn with_no_device_left_training_ends_with_an_error_that_says_why() {
    let faults: Vec<_> = (0..3).map(|d| (d, fault(Phase::Gradients, 3 + d as u64, &Kind::Error))).collect();
    let (mut trainer, _) = simulated::trainer(&three_epochs(), &steady(3), &faults).unwrap();
    let mut recorder = Recorder::default();
    let error = trainer.fit(&data(), None, &mut recorder).unwrap_err().to_string();
    assert!(error.contains("no device is left") && error.contains("injected fault in Gradients"), "{error}");
    assert_eq!(recorder.lost.len(), 2, "the others' losses were told before");
    // Asking again neither hangs nor panics.
    assert!(trainer.fit(&data(), None, &mut recorder).is_err());
    assert!(trainer.weights_of(0).is_err());
    assert!(trainer.snapshot().is_err());
    assert!(trainer.evaluate(&data()).is_err());

    let all: Vec<_> = (0..2).map(|d| (d, fault(Phase::Prepare, 1, &Kind::Panic))).collect();
    let error = simulated::trainer(&three_epochs(), &steady(2), &all).map(drop).unwrap_err().to_string();
    assert!(error.contains("no device is left") && error.contains("injected panic in Prepare"), "{error}");
}

/// A bit that flips on the way to one device, in silence: the run ends with the device and the bucket named.
#[test]
fn weights_that_differ_are_an_error() {
    let options = TrainOptions { verify_weights_every: 1, ..three_epochs() };
    for (call, bucket) in [(7, 0), (8, 1)] {
        let faults = [(1, fault(Phase::Write, call, &Kind::Corrupt))];
        let (mut trainer, struck) = simulated::trainer(&options, &steady(3), &faults).unwrap();
        let error = trainer.fit(&data(), None, &mut Recorder::default()).unwrap_err().to_string();
        assert_eq!(struck.load(Ordering::SeqCst), 1);
        let words = format!("simulated 1 differ from those of simulated 0 in buckets [{bucket}]");
        assert!(error.contains(&words), "{error}");
        assert_eq!(trainer.position().step, 3, "it was seen in the step in which it happened");
    }
}

#[test]
fn a_lost_device_is_not_read_from() {
    let (mut trainer, _) =
        simulated::trainer(&three_epochs(), &steady(2), &[(1, fault(Phase::Gradients, 2, &Kind::Error))]).unwrap();
    trainer.fit(&data(), None, &mut Recorder::default()).unwrap();
    let error = trainer.weights_of(1).unwrap_err().to_string();
    assert!(error.contains("simulated 1 no longer works"), "{error}");
}

/// Real devices, destroyed in the middle of a run as if they were unplugged.
#[test]
fn training_survives_the_loss_of_a_real_device() {
    let task = Task::classification(Sequential::new([7]).linear(16).tanh().linear(5));
    let data: Arc<dyn Dataset> = Arc::new(classes(27, &[7], 5, 1));
    let options = TrainOptions { epochs: 3, optimizer: Optimizer::sgd(0.9), ..options(8) };
    let mut alone = trainer_on(&devices(1), &task, &options);
    alone.fit(&data, None, &mut Recorder::default()).unwrap();
    let expected = agreed_weights(&mut alone);
    for (lost, phase, call) in [
        (1, Phase::Gradients, 3),
        (1, Phase::MidStream, 3),
        (1, Phase::Write, 9),
        (0, Phase::Gradients, 3),
        (0, Phase::Update, 3),
        (0, Phase::MidUpdate, 3),
    ] {
        let (devices, struck) = (devices_to_lose(2), Arc::new(AtomicU64::new(0)));
        let fault = Fault { phase, call, kind: Kind::Destroy(devices[lost].clone()) };
        let counter = struck.clone();
        let many = layout(&task, 512);
        assert!(many.buckets().len() > 1);
        let mut trainer = trainer_with(&devices, &task, &options, &many, move |index, worker| {
            let faults = if index == lost { vec![fault.clone()] } else { Vec::new() };
            Box::new(Faulty::new(Box::new(worker), faults, counter.clone()))
        })
        .unwrap();
        let mut recorder = Recorder::default();
        let report = trainer.fit(&data, None, &mut recorder).unwrap();
        assert_eq!(struck.load(Ordering::SeqCst), 1, "{phase:?} on {lost}: the device was not destroyed");
        assert_eq!((recorder.lost.as_slice(), report.steps), (&[lost][..], 12), "{phase:?} on {lost}");
        assert_eq!(recorder.rolled_back.len(), usize::from(lost == 0), "{phase:?} on {lost}");
        let error = distance(&agreed_weights(&mut trainer), &expected);
        assert!(error <= 1e-5, "{phase:?} on {lost}: the weights are off by {error:.1e}");
    }
}

/// Every test that docs/devices.md names as what a statement rests on.
#[test]
fn the_tests_that_the_fault_matrix_names_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/devices.md")).unwrap();
    let named: Vec<(&str, &str)> =
        text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect();
    assert!(named.len() >= 10, "{named:?}");
    for (file, test) in named {
        let path = root.join("tests/integration").join(file).with_extension("rs");
        let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(source.contains(&format!("#[test]\nfn {test}()")), "{file}.rs has no test {test}");
    }
}
