//! Devices that hang, compute wrongly without saying so, or come back after a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everygpu::error::Result;
use everygpu::run::{CheckpointPolicy, RunFolder};
use everygpu::train::{Endurance, Flow, Observer, Progress, Split, TrainOptions, Trainer, WorkerFactory};

use crate::simulated::{self, Fault, Kind, Phase, Simulated, speed};
use crate::training::*;
use crate::workers::{data, fault, three_epochs};

fn trainer(options: &TrainOptions, devices: usize, faults: &[(usize, Fault)]) -> Trainer {
    let speeds: Vec<_> = (0..devices).map(|_| speed(0.0, 1.0)).collect();
    simulated::trainer(options, &speeds, faults).expect("the devices start").0
}

fn undisturbed(devices: usize) -> Weights {
    let mut plain = trainer(&three_epochs(), devices, &[]);
    plain.fit(&data(), None, &mut Recorder::default()).unwrap();
    agreed_weights(&mut plain)
}

/// All cases at once: they wait most of the time.
#[test]
fn a_device_that_hangs_is_left_out() {
    let endurance = Endurance { hang_timeout: Some(Duration::from_secs(3)), rejoin_after: 0, ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    let expected = undisturbed(3);
    let everywhere = [Phase::Gradients, Phase::MidStream, Phase::Evaluate, Phase::Write, Phase::Fingerprints];
    let cases = everywhere.into_iter().flat_map(|phase| [(0, phase), (1, phase)]);
    std::thread::scope(|scope| {
        for (device, phase) in cases.chain([(0, Phase::Update), (0, Phase::MidUpdate)]) {
            let (options, expected) = (&options, &expected);
            scope.spawn(move || {
                let what = format!("{phase:?} on device {device}");
                let hang = fault(phase, 4, &Kind::Hang(Duration::from_secs(20)));
                let mut faulty = trainer(options, 3, &[(device, hang)]);
                let mut recorder = Recorder::default();
                faulty.fit(&data(), Some(&data()), &mut recorder).unwrap();
                assert_eq!(
                    (recorder.lost.as_slice(), recorder.rolled_back.len()),
                    (&[device][..], 1 - device),
                    "{what}"
                );
                assert!(recorder.errors[0].contains("did not answer within 3.0s"), "{what}: {:?}", recorder.errors);
                assert!(distance(&agreed_weights(&mut faulty), expected) <= 2e-6, "{what}");
            });
        }
    });
}

/// At the start, and when another device has been lost. All cases at once: they wait most of the time.
#[test]
fn a_device_that_hangs_while_it_compiles_is_left_out() {
    let patience = Some(Duration::from_secs(3));
    let endurance = Endurance { hang_timeout: patience, compile_timeout: patience, rejoin_after: 0 };
    let options = TrainOptions { endurance, ..three_epochs() };
    let expected = undisturbed(3);
    let hang = |phase, call| fault(phase, call, &Kind::Hang(Duration::from_secs(20)));
    let lost = |device| (device, fault(Phase::Gradients, 4, &Kind::Error));
    let cases = [
        (vec![(0, hang(Phase::Prepare, 1))], vec![0]),
        (vec![(1, hang(Phase::Prepare, 1))], vec![1]),
        (vec![(0, hang(Phase::Lead, 1))], vec![0]),
        (vec![(1, hang(Phase::Gradients, 1))], vec![1]),
        (vec![(0, hang(Phase::Update, 1))], vec![0]),
        (vec![lost(2), (1, hang(Phase::Prepare, 2))], vec![2, 1]),
        (vec![lost(0), (1, hang(Phase::Lead, 1))], vec![0, 1]),
    ];
    std::thread::scope(|scope| {
        for (faults, left_out) in cases {
            let (options, expected) = (&options, &expected);
            scope.spawn(move || {
                let mut faulty = trainer(options, 3, &faults);
                let mut recorder = Recorder::default();
                faulty.fit(&data(), None, &mut recorder).unwrap();
                assert_eq!(recorder.lost, left_out, "{faults:?}: {:?}", recorder.errors);
                let last = recorder.errors.last().unwrap();
                assert!(last.contains("did not answer within 3.0s"), "{faults:?}: {last}");
                assert!(distance(&agreed_weights(&mut faulty), expected) <= 2e-6, "{faults:?}");
            });
        }
    });
}

/// When it is prepared, or not before it computes, as some drivers do. All cases at once: they wait most of the time.
#[test]
fn a_device_that_compiles_for_long_is_waited_for() {
    let endurance = Endurance { hang_timeout: Some(Duration::from_secs(3)), rejoin_after: 0, ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    let long = |device, phase, call| (device, fault(phase, call, &Kind::Hang(Duration::from_secs(5))));
    let first = [Phase::Prepare, Phase::Gradients, Phase::MidStream, Phase::Evaluate, Phase::Fingerprints];
    let mut cases: Vec<_> = first.map(|phase| (vec![long(1, phase, 1)], vec![])).into();
    cases.extend([Phase::Update, Phase::MidUpdate].map(|phase| (vec![long(0, phase, 1)], vec![])));
    // The first time with another device's rows.
    let taken_over = [long(1, Phase::Gradients, 5), long(1, Phase::Evaluate, 1)];
    cases.extend(taken_over.map(|long| (vec![(2, fault(Phase::Gradients, 4, &Kind::Error)), long], vec![2])));
    std::thread::scope(|scope| {
        for (faults, lost) in cases {
            let options = &options;
            scope.spawn(move || {
                let mut slow = trainer(options, 3, &faults);
                let mut recorder = Recorder::default();
                slow.fit(&data(), Some(&data()), &mut recorder).unwrap();
                assert_eq!(recorder.lost, lost, "{faults:?}: {:?}", recorder.errors);
            });
        }
    });
}

/// A follower gets the last weights, and nobody waits for it any more.
#[test]
fn a_device_that_hangs_in_the_last_hand_over_does_not_keep_the_program() {
    let endurance = Endurance { hang_timeout: Some(Duration::from_secs(2)), ..Endurance::default() };
    let options = TrainOptions { endurance, epochs: 1, verify_weights_every: 0, snapshot_every: 0, ..three_epochs() };
    // Two buckets at the start and after each of five steps.
    let mut hung = trainer(&options, 2, &[(1, fault(Phase::Write, 11, &Kind::Hang(Duration::from_secs(3600))))]);
    hung.fit(&data(), None, &mut Recorder::default()).unwrap();
    let (ended, wait) = channel();
    std::thread::spawn(move || {
        drop(hung);
        ended.send(()).unwrap();
    });
    wait.recv_timeout(Duration::from_secs(120)).expect("a device that hangs is left to itself");
}

/// Lets a device that was given up be opened after all, in the third step.
struct Opener {
    recorder: Recorder,
    open: Option<Sender<()>>,
    opened: Arc<AtomicU64>,
}

impl Observer for Opener {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        if matches!(progress, Progress::Step(record) if record.step == 2) {
            self.open = None;
            while self.opened.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            // It has only to say so.
            std::thread::sleep(Duration::from_millis(200));
        }
        self.recorder.observe(progress, trainer)
    }
}

#[test]
fn a_device_that_is_opened_too_late_is_not_let_in() {
    let endurance =
        Endurance { compile_timeout: Some(Duration::from_secs(2)), rejoin_after: 0, ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    let (layout, opened, (open, wait)) = (simulated::two_buckets(), Arc::new(AtomicU64::new(0)), channel::<()>());
    let wait = Arc::new(Mutex::new(wait));
    let factory = |index: usize| {
        let (layout, opened, wait) = (layout.clone(), opened.clone(), wait.clone());
        WorkerFactory::new(move || {
            if index == 1 {
                let _ = wait.lock().unwrap().recv();
                opened.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Box::new(Simulated::new(index, layout.clone(), speed(0.0, 1.0))))
        })
    };
    let workers = (0..2).map(factory).collect();
    let mut trainer = Trainer::with_workers(simulated::task(), options, workers, layout.clone()).unwrap();
    let mut opener = Opener { recorder: Recorder::default(), open: Some(open), opened };
    trainer.fit(&data(), None, &mut opener).unwrap();
    let recorder = opener.recorder;
    assert_eq!((recorder.lost.as_slice(), recorder.rejoined.len()), (&[1][..], 0), "{:?}", recorder.errors);
}

/// Steps after which a lost device is tried again.
const REJOIN_AFTER: u64 = 3;

/// Gives a device that is being started again time for it, as much as a busy machine takes: simulated steps take none.
#[derive(Default)]
struct Patient {
    recorder: Recorder,
    /// The step in which a device was lost.
    lost: u64,
}

impl Observer for Patient {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        let step = trainer.position().step;
        if matches!(progress, Progress::Lost(_)) {
            self.lost = step;
        }
        if trainer.coordinator().alive().contains(&false) && step > self.lost + REJOIN_AFTER {
            std::thread::sleep(Duration::from_millis(500));
        }
        self.recorder.observe(progress, trainer)
    }
}

#[test]
fn a_lost_device_comes_back_with_the_current_weights() {
    let endurance = Endurance { rejoin_after: REJOIN_AFTER, ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    for device in [0, 2] {
        let mut faulty = trainer(&options, 3, &[(device, fault(Phase::Gradients, 2, &Kind::Error))]);
        let mut patient = Patient::default();
        faulty.fit(&data(), None, &mut patient).unwrap();
        let recorder = patient.recorder;
        assert_eq!(recorder.lost, [device]);
        assert_eq!(recorder.rejoined, [format!("simulated {device}")]);
        assert_eq!(faulty.coordinator().alive(), [true; 3]);
        let shards: Vec<usize> = recorder.steps.iter().map(|s| s.shards[device]).collect();
        assert!(shards.contains(&0) && *shards.last().unwrap() > 0, "its rows by step: {shards:?}");
        assert!(distance(&agreed_weights(&mut faulty), &undisturbed(3)) <= 2e-6);
    }
}

#[test]
fn a_device_that_begins_to_compute_wrongly_is_outvoted() {
    let options = TrainOptions { cross_check_every: 1, ..three_epochs() };
    for device in 0..3 {
        // Its first wrong gradients are those of a cross-check: every second call is one.
        let mut faulty = trainer(&options, 3, &[(device, fault(Phase::Gradients, 6, &Kind::Wrong))]);
        let mut recorder = Recorder::default();
        faulty.fit(&data(), None, &mut recorder).unwrap();
        assert_eq!(recorder.lost, [device]);
        assert!(recorder.errors[0].contains("computes other gradients"), "{:?}", recorder.errors);
        assert!(distance(&agreed_weights(&mut faulty), &undisturbed(3)) <= 2e-6);
    }
}

#[test]
fn two_devices_that_disagree_stop_the_training() {
    let options = TrainOptions { cross_check_every: 1, ..three_epochs() };
    let mut faulty = trainer(&options, 2, &[(1, fault(Phase::Gradients, 6, &Kind::Wrong))]);
    let error = faulty.fit(&data(), None, &mut Recorder::default()).unwrap_err().to_string();
    assert!(error.contains("simulated 0 and simulated 1 disagree"), "{error}");
}

#[test]
fn devices_that_agree_go_on() {
    let options = TrainOptions { cross_check_every: 1, ..three_epochs() };
    let mut checked = trainer(&options, 3, &[]);
    let mut recorder = Recorder::default();
    checked.fit(&data(), None, &mut recorder).unwrap();
    assert!(recorder.lost.is_empty());
    assert_eq!(agreed_weights(&mut checked), undisturbed(3), "a cross-check changes nothing");
}

/// The device that comes back compiles in its first step, which says nothing of how fast it is.
#[test]
fn the_first_step_of_a_device_that_comes_back_is_not_measured() {
    let endurance = Endurance { rejoin_after: REJOIN_AFTER, ..Endurance::default() };
    let options = TrainOptions { endurance, split: Split::Speed, epochs: 10, ..three_epochs() };
    let speeds = [speed(0.0, 1.0), speed(0.0, 1.0)];
    let faults = [(1, fault(Phase::Gradients, 2, &Kind::Error))];
    let (mut trainer, _) = simulated::trainer(&options, &speeds, &faults).unwrap();
    let mut patient = Patient::default();
    let mut back = None;
    let mut observer = Compiling { patient: &mut patient, speed: speeds[1].clone(), back: &mut back };
    trainer.fit(&data(), None, &mut observer).unwrap();
    let (back, steps) = (back.expect("it comes back"), &patient.recorder.steps);
    let full = |step: &&everygpu::train::StepRecord| step.step >= back && step.samples == 24;
    let shares: Vec<usize> = steps.iter().filter(full).map(|step| step.shards[1]).collect();
    assert!(shares.len() > 20 && shares.iter().all(|share| *share == 12), "{shares:?}");
}

/// Makes a device slow from when it is lost until its first step is done.
struct Compiling<'a> {
    patient: &'a mut Patient,
    speed: simulated::Speed,
    /// The step in which it came back.
    back: &'a mut Option<u64>,
}

impl Observer for Compiling<'_> {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        match progress {
            Progress::Lost(_) => *self.speed.lock().unwrap() = (1000.0, 1.0),
            Progress::Rejoined(_) => {
                *self.speed.lock().unwrap() = (0.0, 1.0);
                *self.back = Some(trainer.position().step);
            }
            _ => {}
        }
        self.patient.observe(progress, trainer)
    }
}

/// Notes how many faults had come when a loss was told.
struct Timely {
    recorder: Recorder,
    struck: Arc<AtomicU64>,
    told: Vec<u64>,
}

impl Observer for Timely {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        if matches!(progress, Progress::Lost(_)) {
            self.told.push(self.struck.load(Ordering::SeqCst));
        }
        self.recorder.observe(progress, trainer)
    }
}

/// Not only when the others are ready for its rows, or one of them for its place: that may take a while.
#[test]
fn a_loss_is_told_at_once() {
    let nothing = &Kind::Hang(Duration::ZERO);
    let lead =
        [Phase::Gradients, Phase::MidStream, Phase::Update, Phase::MidUpdate, Phase::Evaluate, Phase::Fingerprints];
    let lead = lead.map(|phase| (0, phase, (1, fault(Phase::Lead, 1, nothing))));
    let others = [Phase::Gradients, Phase::MidStream, Phase::Evaluate, Phase::Fingerprints];
    let others = others.map(|phase| (1, phase, (0, fault(Phase::Prepare, 2, nothing))));
    for (device, phase, next) in lead.into_iter().chain(others) {
        let faults = [(device, fault(phase, 2, &Kind::Error)), next];
        let speeds = [speed(0.0, 1.0), speed(0.0, 1.0)];
        let (mut trainer, struck) = simulated::trainer(&three_epochs(), &speeds, &faults).unwrap();
        let mut timely = Timely { recorder: Recorder::default(), struck: struck.clone(), told: Vec::new() };
        trainer.fit(&data(), Some(&data()), &mut timely).unwrap();
        let end = struck.load(Ordering::SeqCst);
        assert_eq!((timely.recorder.lost, timely.told, end), (vec![device], vec![1], 2), "{phase:?} on {device}");
    }
}

/// What was in host memory alone becomes a checkpoint, from which training goes on as if nothing had been.
#[test]
fn when_all_devices_are_lost_the_last_snapshot_is_kept() {
    let places = tempfile::tempdir().unwrap();
    let policy = CheckpointPolicy { every: 0, keep_last: 1, keep_best: 0 };
    // In the second epoch, after the snapshot of its third step: at once, the lead first, and while the other takes
    // over.
    let options = TrainOptions { snapshot_every: 8, ..three_epochs() };
    let cases = [(Phase::Gradients, 10, Phase::Gradients, 10), (Phase::Update, 10, Phase::Lead, 1)];
    for (number, (lead, call, other, other_call)) in cases.into_iter().enumerate() {
        let faults = [(0, fault(lead, call, &Kind::Error)), (1, fault(other, other_call, &Kind::Error))];
        let mut lost = trainer(&options, 2, &faults);
        let mut folder = RunFolder::create(places.path(), &format!("run{number}"), policy).unwrap();
        let error = lost.fit(&data(), None, &mut folder).unwrap_err().to_string();
        assert!(error.contains("no device is left"), "{error}");
        assert!(folder.keep(lost.last_snapshot().expect("there is one")).unwrap());
        let checkpoint = folder.store().latest().unwrap().expect("it is saved");
        assert_eq!(checkpoint.step, 8, "{error}");
        assert!(!folder.keep(lost.last_snapshot().unwrap()).unwrap(), "it is there already");
        let mut resumed = trainer(&options, 2, &[]);
        resumed.restore(&everygpu::checkpoint::Store::load(&checkpoint.path).unwrap()).unwrap();
        resumed.fit(&data(), None, &mut Recorder::default()).unwrap();
        assert!(distance(&agreed_weights(&mut resumed), &undisturbed(2)) <= 2e-6);
    }
}
