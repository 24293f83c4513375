//! Devices of unequal speed: the split finds it, follows it, leaves out who is too slow and looks again later.
//!
//! Devices only say how long they took, and say minutes for a step: however busy this machine is, what its own threads
//! take beside is nothing to that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everygpu::data::Dataset;
use everygpu::train::{Split, TrainOptions};

use crate::simulated::{self, Kind, Phase, Speed, speed};
use crate::training::*;
use crate::workers::fault;

/// Steps per second of what the split gives, against the best there is: all devices busy all the time.
fn efficiency(batch: usize, speeds: &[Speed], shards: &[usize]) -> f64 {
    let lines: Vec<(f64, f64)> = speeds.iter().map(|s| *s.lock().unwrap()).collect();
    let time =
        lines.iter().zip(shards).map(|((a, b), &n)| if n > 0 { a + b * n as f64 } else { 0.0 }).fold(0.0, f64::max);
    batch as f64 / time / lines.iter().map(|(_, b)| 1.0 / b).sum::<f64>()
}

fn by_speed(batch: usize) -> TrainOptions {
    TrainOptions { split: Split::Speed, epochs: 1000, ..options(batch) }
}

#[test]
fn the_split_converges_to_the_speeds() {
    for costs in [&[1.0, 1.0][..], &[1.0, 2.0], &[1.0, 6.0], &[1.0, 2.0, 4.0]] {
        let speeds: Vec<Speed> = costs.iter().map(|&b| speed(0.0, b)).collect();
        let (mut trainer, _) = simulated::trainer(&by_speed(64), &speeds, &[]).unwrap();
        let record = train(&mut trainer, &data(), 20);
        let shards = &record.steps.last().unwrap().shards;
        let reached = efficiency(64, &speeds, shards);
        assert!(reached >= 0.95, "{costs:?}: {shards:?} reaches {reached:.3} of the sum of the speeds");
        let even = efficiency(64, &speeds, &record.steps[0].shards);
        assert!(costs.iter().all(|c| *c == costs[0]) || even < 0.8, "{costs:?}: an even split reaches {even:.3}");
        let moved: Vec<u64> = record.steps.iter().filter(|s| s.resplit.is_some()).map(|s| s.step).collect();
        assert!(moved.len() <= 2, "{costs:?}: steady speeds, but the split changed after steps {moved:?}");
    }
}

#[test]
fn the_split_follows_a_change_of_speed() {
    let speeds = [speed(2.0, 1.0), speed(2.0, 1.0)];
    let (mut trainer, _) = simulated::trainer(&by_speed(64), &speeds, &[]).unwrap();
    train(&mut trainer, &data(), 30);
    *speeds[1].lock().unwrap() = (6.0, 3.0);
    let record = train(&mut trainer, &data(), 50);
    let shards = &record.steps.last().unwrap().shards;
    let best = (0..=64).map(|n| efficiency(64, &speeds, &[64 - n, n])).fold(0.0, f64::max);
    let reached = efficiency(64, &speeds, shards) / best;
    assert!(reached >= 0.95, "20 steps after the change {shards:?} reaches {reached:.3} of the best split");
    assert!(efficiency(64, &speeds, &[32, 32]) / best < 0.8);
}

#[test]
fn a_device_that_would_slow_the_step_gets_nothing() {
    let speeds = [speed(0.0, 1.0), speed(1000.0, 0.1)];
    let (mut trainer, _) = simulated::trainer(&by_speed(64), &speeds, &[]).unwrap();
    let record = train(&mut trainer, &data(), 30);
    assert_eq!(record.steps[0].shards, [32, 32]);
    assert_eq!(record.steps.last().unwrap().shards, [64, 0]);
    agreed_weights(&mut trainer); // the idle device has the weights too
}

#[test]
fn a_deterministic_run_keeps_its_split() {
    let speeds = [speed(0.0, 1.0), speed(0.0, 6.0)];
    let options = TrainOptions { deterministic: true, ..by_speed(64) };
    let (mut trainer, _) = simulated::trainer(&options, &speeds, &[]).unwrap();
    let record = train(&mut trainer, &data(), 30);
    assert!(record.steps.iter().all(|s| s.shards == [32, 32] && s.resplit.is_none()));
}

fn data() -> Arc<dyn Dataset> {
    Arc::new(numbers(640, simulated::FEATURES, 4))
}

/// Steps that a device without samples is not measured in.
const PAUSE: u64 = 200;
const FAST: (f64, f64) = (10.0, 1.0);
/// Ten times as slow: what is fixed of it is more than a fast device's time for a batch of 64.
const SLOW: (f64, f64) = (100.0, 10.0);

#[test]
fn a_device_that_has_become_fast_is_used_again() {
    for slow in [0, 1] {
        let speeds = [0, 1].map(|device| if device == slow { speed(SLOW.0, SLOW.1) } else { speed(FAST.0, FAST.1) });
        let (mut trainer, _) = simulated::trainer(&by_speed(64), &speeds, &[]).unwrap();
        let before = train(&mut trainer, &data(), 30);
        assert_eq!(before.steps.last().unwrap().shards[slow], 0);
        let label = format!("simulated {slow}");
        let reason = format!(
            "{label} gets no samples: its fixed time of 100000.0 ms alone exceeds the common finish of 74000.0 ms"
        );
        assert_eq!((before.idle, before.employed.len()), (vec![reason], 0), "told once");
        *speeds[slow].lock().unwrap() = FAST;
        let after = train(&mut trainer, &data(), 30 + PAUSE + 20);
        let shards = &after.steps.last().unwrap().shards;
        assert!(shards[slow] >= 24, "{shards:?}");
        assert_eq!((after.employed, after.idle.len()), (vec![label], 0));
        agreed_weights(&mut trainer);
    }
}

#[test]
fn a_device_that_stays_slow_is_hardly_asked() {
    let speeds = [speed(FAST.0, FAST.1), speed(SLOW.0, SLOW.1)];
    let (mut trainer, _) = simulated::trainer(&by_speed(64), &speeds, &[]).unwrap();
    let record = train(&mut trainer, &data(), 2000);
    let asked: Vec<u64> = record.steps.iter().filter(|s| s.step > 30 && s.shards[1] > 0).map(|s| s.step).collect();
    // 200, 400, 800 steps apart, two steps a time.
    assert_eq!(asked.len(), 6, "{asked:?}");
    let time = |shards: &[usize]| {
        shards
            .iter()
            .zip([FAST, SLOW])
            .map(|(&n, (a, b))| if n > 0 { a + b * n as f64 } else { 0.0 })
            .fold(0.0, f64::max)
    };
    let (all, alone): (f64, f64) = (record.steps[30..].iter().map(|s| time(&s.shards)).sum(), 1970.0 * time(&[64, 0]));
    assert!(all / alone < 1.01, "probes cost {:.2}% of the time", 100.0 * (all / alone - 1.0));
    assert_eq!((record.idle.len(), record.employed.len()), (1, 0), "told once");
}

#[test]
fn a_device_that_fails_when_it_is_asked_again_is_left_out() {
    for phase in [Phase::Prepare, Phase::Gradients] {
        let (speeds, armed) = ([speed(FAST.0, FAST.1), speed(SLOW.0, SLOW.1)], Arc::new(AtomicBool::new(false)));
        let faults = [(1, fault(phase, 1, &Kind::Error))];
        let (mut trainer, struck) = simulated::trainer_armed_by(&armed, &by_speed(64), &speeds, &faults).unwrap();
        let before = train(&mut trainer, &data(), 30);
        assert_eq!(before.steps.last().unwrap().shards, [64, 0], "{phase:?}");
        armed.store(true, Ordering::SeqCst);
        let record = train(&mut trainer, &data(), 30 + PAUSE);
        assert_eq!(struck.load(Ordering::SeqCst), 1, "{phase:?}");
        assert_eq!((record.lost.as_slice(), record.steps.len() as u64), (&[1][..], PAUSE), "{phase:?}");
        assert_eq!(record.steps.last().unwrap().shards, [64, 0], "{phase:?}");
    }
}

#[test]
fn a_batch_that_cannot_be_shared_goes_to_the_fastest_device() {
    let speeds = [speed(0.0, 6.0), speed(0.0, 3.0), speed(0.0, 1.0)];
    let (mut trainer, _) = simulated::trainer(&by_speed(1), &speeds, &[]).unwrap();
    let record = train(&mut trainer, &data(), 60);
    assert_eq!(record.steps[0].shards, [1, 0, 0]);
    assert_eq!(record.steps.last().unwrap().shards, [0, 0, 1]);
    agreed_weights(&mut trainer);
}

#[test]
fn a_split_that_does_not_adapt_is_left_alone() {
    let speeds = [speed(0.0, 1.0), speed(0.0, 1.0)];
    for (split, deterministic) in [(Split::Weights(vec![1.0, 0.0]), false), (Split::Speed, true)] {
        let options = TrainOptions { split, deterministic, ..by_speed(if deterministic { 1 } else { 64 }) };
        let (mut trainer, _) = simulated::trainer(&options, &speeds, &[]).unwrap();
        let record = train(&mut trainer, &data(), 2 * PAUSE + 50);
        assert!(record.steps.iter().all(|s| s.shards[1] == 0));
        // Weights of 0 are the user's own; that a batch of one leaves a device idle is not.
        let told: &[&str] =
            if deterministic { &["simulated 1 gets no samples: a batch has too few for every device"] } else { &[] };
        assert_eq!(record.idle, told);
    }
}
