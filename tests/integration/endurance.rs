//! Devices that hang, compute wrongly without saying so, or come back after a while.

use std::time::Duration;

use everygpu::error::Result;
use everygpu::train::{Endurance, Flow, Observer, Progress, TrainOptions, Trainer};

use crate::simulated::{self, Fault, Kind, Phase, speed};
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
    let endurance =
        Endurance { compile_timeout: Some(Duration::from_secs(3)), rejoin_after: 0, ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    let expected = undisturbed(3);
    let hang = |phase, call| fault(phase, call, &Kind::Hang(Duration::from_secs(20)));
    let lost = |device| (device, fault(Phase::Gradients, 4, &Kind::Error));
    let cases = [
        (vec![(0, hang(Phase::Prepare, 1))], vec![0]),
        (vec![(1, hang(Phase::Prepare, 1))], vec![1]),
        (vec![(0, hang(Phase::Lead, 1))], vec![0]),
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

#[test]
fn a_device_that_compiles_for_long_is_waited_for() {
    let endurance = Endurance { hang_timeout: Some(Duration::from_secs(3)), ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    let mut slow = trainer(&options, 2, &[(1, fault(Phase::Prepare, 1, &Kind::Hang(Duration::from_secs(5))))]);
    let mut recorder = Recorder::default();
    slow.fit(&data(), None, &mut recorder).unwrap();
    assert!(recorder.lost.is_empty(), "{:?}", recorder.errors);
}

/// Gives a device that is being started again time for it: simulated steps take none.
#[derive(Default)]
struct Patient(Recorder);

impl Observer for Patient {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        if trainer.coordinator().alive().contains(&false) {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.0.observe(progress, trainer)
    }
}

#[test]
fn a_lost_device_comes_back_with_the_current_weights() {
    let endurance = Endurance { rejoin_after: 3, ..Endurance::default() };
    let options = TrainOptions { endurance, ..three_epochs() };
    for device in [0, 2] {
        let mut faulty = trainer(&options, 3, &[(device, fault(Phase::Gradients, 2, &Kind::Error))]);
        let mut patient = Patient::default();
        faulty.fit(&data(), None, &mut patient).unwrap();
        let recorder = patient.0;
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
