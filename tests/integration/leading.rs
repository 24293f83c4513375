//! Who leads: the device whose updates are done first, found by measurement, whatever the order of the devices. And
//! what is spared where one device does it all.
//!
//! Updates and exchanges are timed by the clock, so what is to be found slow is slow indeed: by far more than a busy
//! machine makes of what takes no time.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use everygpu::checkpoint::Snapshot;
use everygpu::data::Dataset;
use everygpu::train::{Split, TrainOptions};

use crate::simulated::{self, Fault, Kind, Phase, Speed, speed};
use crate::training::*;
use crate::workers::fault;

const STEPS: u64 = 40;

/// What a call of [`delayed`] takes longer.
const DELAY: Duration = Duration::from_millis(60);

fn data() -> Arc<dyn Dataset> {
    Arc::new(numbers(640, simulated::FEATURES, 4))
}

fn by_speed() -> TrainOptions {
    TrainOptions { split: Split::Speed, epochs: 1000, verify_weights_every: 3, snapshot_every: 0, ..options(64) }
}

/// Device 1 computes six times as fast as device 0, which takes longer for a batch alone (115 ms) than both together
/// with a [`DELAY`] (77 ms).
fn speeds() -> [Speed; 2] {
    [speed(0.0, 0.0018), speed(0.0, 0.0003)]
}

/// Each call of `phase` on `device` takes [`DELAY`] longer.
fn delayed(device: usize, phase: Phase) -> Vec<(usize, Fault)> {
    (1..=2 * STEPS).map(|call| (device, fault(phase, call, &Kind::Hang(DELAY)))).collect()
}

/// The weights after [`STEPS`] steps on devices that lead in their order.
fn expected() -> &'static Weights {
    static WEIGHTS: OnceLock<Weights> = OnceLock::new();
    WEIGHTS.get_or_init(|| {
        let options = TrainOptions { deterministic: true, ..by_speed() };
        let (mut trainer, _) = simulated::trainer(&options, &speeds(), &delayed(0, Phase::Update)).unwrap();
        let record = train(&mut trainer, &data(), STEPS);
        assert_eq!((trainer.coordinator().lead(), record.led.len()), (0, 0), "a deterministic run keeps its lead");
        agreed_weights(&mut trainer)
    })
}

#[test]
fn the_device_whose_updates_are_done_first_leads() {
    let (mut trainer, _) = simulated::trainer(&by_speed(), &speeds(), &delayed(0, Phase::Update)).unwrap();
    let record = train(&mut trainer, &data(), STEPS);
    assert_eq!((record.led.as_slice(), trainer.coordinator().lead()), (&["simulated 1".to_owned()][..], 1));
    assert!(record.lost.is_empty() && record.rolled_back.is_empty());
    // Momentum went over with the lead.
    assert!(distance(&agreed_weights(&mut trainer), expected()) <= 2e-6);
}

#[test]
fn a_resumed_run_keeps_its_lead() {
    let (mut trainer, _) = simulated::trainer(&by_speed(), &speeds(), &delayed(0, Phase::Update)).unwrap();
    train(&mut trainer, &data(), STEPS - 10);
    let snapshot = trainer.snapshot().unwrap();
    let (mut resumed, _) = simulated::trainer(&by_speed(), &speeds(), &[]).unwrap();
    resumed.restore(&snapshot).unwrap();
    assert_eq!(resumed.coordinator().lead(), 1);
    train(&mut resumed, &data(), STEPS);
    assert!(distance(&agreed_weights(&mut resumed), expected()) <= 2e-6);
}

#[test]
fn a_run_that_is_resumed_on_other_devices_divides_anew() {
    let (mut trainer, _) = simulated::trainer(&by_speed(), &speeds(), &delayed(0, Phase::Update)).unwrap();
    train(&mut trainer, &data(), STEPS - 10);
    let mut snapshot = trainer.snapshot().unwrap();
    let restored = |snapshot: &Snapshot| {
        let (mut resumed, _) = simulated::trainer(&by_speed(), &speeds(), &[]).unwrap();
        resumed.restore(snapshot).unwrap();
        (resumed.coordinator().split().to_vec(), resumed.coordinator().lead())
    };
    let (split, lead) = restored(&snapshot);
    assert!(split[1] > 48 && lead == 1, "{split:?}");
    snapshot.state["devices"].as_array_mut().unwrap().reverse();
    assert_eq!(restored(&snapshot), (vec![32, 32], 0));
}

#[test]
fn a_fault_in_a_change_of_the_lead_loses_nothing() {
    // The first snapshot reads four buckets; the fifth is the first of the state that is handed over.
    let cases = [
        (1, Phase::Lead, 1, Kind::Error, &[1][..], 0),
        (1, Phase::Lead, 1, Kind::Panic, &[1], 0),
        (1, Phase::Lead, 1, Kind::OutOfMemory, &[], 0),
        (0, Phase::Read, 5, Kind::Error, &[0], 1),
    ];
    for (device, phase, call, kind, lost, rolled_back) in cases {
        let what = format!("{kind:?} in {phase:?} on device {device}");
        let mut faults = delayed(0, Phase::Update);
        faults.push((device, fault(phase, call, &kind)));
        let options = TrainOptions { verify_weights_every: 0, ..by_speed() };
        let (mut trainer, _) = simulated::trainer(&options, &speeds(), &faults).unwrap();
        let record = train(&mut trainer, &data(), STEPS);
        assert_eq!((record.lost.as_slice(), record.rolled_back.len()), (lost, rolled_back), "{what}");
        let leads = usize::from(device == 0);
        assert_eq!((record.led.len(), trainer.coordinator().lead()), (0, leads), "{what}");
        assert!(distance(&agreed_weights(&mut trainer), expected()) <= 2e-6, "{what}");
    }
}

#[test]
fn a_device_without_the_memory_to_lead_computes_all_the_same() {
    let (mut trainer, struck) =
        simulated::trainer(&by_speed(), &speeds(), &[(0, fault(Phase::Lead, 1, &Kind::OutOfMemory))]).unwrap();
    let record = train(&mut trainer, &data(), STEPS);
    assert_eq!((struck.load(Ordering::SeqCst), trainer.coordinator().lead(), record.lost.len()), (1, 1, 0));
    assert!(record.steps.iter().all(|step| step.shards[0] > 0));
    assert!(distance(&agreed_weights(&mut trainer), expected()) <= 2e-6);
}

#[test]
fn an_exchange_that_costs_more_than_it_saves_is_spared() {
    // Device 0's gradients take a long way to the host, which is not in the times it reports.
    let (mut trainer, _) = simulated::trainer(&by_speed(), &speeds(), &delayed(0, Phase::MidStream)).unwrap();
    let record = train(&mut trainer, &data(), STEPS);
    assert_eq!(record.steps.last().unwrap().shards, [0, 64]);
    let [reason] = &record.idle[..] else { panic!("told once: {:?}", record.idle) };
    let told = reason.strip_prefix("simulated 0 gets no samples: with it a batch takes ");
    let together = told.and_then(|told| told.split_once(" ms, ")).and_then(|(time, _)| time.parse::<f64>().ok());
    assert!(together.is_some_and(|time| time >= 1e3 * DELAY.as_secs_f64()), "{reason}");
    assert!(distance(&agreed_weights(&mut trainer), expected()) <= 2e-6);
}

#[test]
fn a_device_without_samples_gets_weights_only_when_they_are_needed() {
    let split = Split::Weights(vec![1.0, 0.0]);
    let options = TrainOptions { split, ..by_speed() };
    // It gets the first weights, and none of the 40 steps'.
    let (mut trainer, struck) =
        simulated::trainer(&options, &speeds(), &[(1, fault(Phase::Write, 5, &Kind::Error))]).unwrap();
    let record = train(&mut trainer, &data(), STEPS);
    assert_eq!((struck.load(Ordering::SeqCst), record.lost.len()), (0, 0));
    let (mut trainer, _) = simulated::trainer(&options, &speeds(), &[]).unwrap();
    train(&mut trainer, &data(), STEPS);
    assert!(distance(&agreed_weights(&mut trainer), expected()) <= 2e-6, "they are the lead's when read");
}
