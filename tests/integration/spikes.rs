//! A poisoned sample in the middle of a training: what is done about the spike in the loss, and that it can be
//! repeated.

use std::sync::Arc;

use everygpu::data::Dataset;
use everygpu::nn::layers::{BatchNorm, Residual};
use everygpu::nn::{Block, Sequential};
use everygpu::optim::Schedule;
use everygpu::train::{OnLossSpike, SpikePolicy, StepRecord, Task, TrainOptions, Trainer, Unapplied};

use crate::simulated::{self, Fault, Kind, Phase, speed};
use crate::training::*;
use crate::workers::fault;

const BATCH: usize = 8;
pub const STEPS: u64 = 90;
/// The step whose batch holds the poisoned sample, and the snapshot before it.
pub const SPIKE: u64 = 65;
pub const SNAPSHOT: u64 = 60;

pub fn options(action: OnLossSpike) -> TrainOptions {
    let loss_spike = SpikePolicy { action, ..SpikePolicy::default() };
    TrainOptions { epochs: 1, snapshot_every: 20, loss_spike, ..crate::training::options(BATCH) }
}

/// Samples of a line with noise, in the order of the first epoch; one has an input that is `factor` times too large.
/// The samples of the steps `without` weigh nothing.
pub fn data(factor: f32, without: std::ops::RangeInclusive<u64>) -> Arc<dyn Dataset> {
    let (n, features) = (STEPS as usize * BATCH, simulated::FEATURES);
    let mut stream = everygpu::rng::Stream::new(7, "samples");
    let mut inputs: Vec<f32> = (0..n * features).map(|_| stream.normal() as f32).collect();
    let targets: Vec<f32> =
        inputs.chunks(features).map(|x| x.iter().sum::<f32>() + 0.3 * stream.normal() as f32).collect();
    inputs[(SPIKE as usize * BATCH + 3) * features] *= factor;
    let weight = |sample: usize| if without.contains(&((sample / BATCH) as u64)) { 0.0 } else { 1.0 };
    let weights: Vec<f32> = (0..n).map(weight).collect();
    let data = in_order(&inputs, &targets, features, &options(OnLossSpike::Ignore));
    // The weights stand in the order of training too.
    let order = in_order(&inputs, &weights, features, &options(OnLossSpike::Ignore));
    Arc::new(data.with_weights(order.targets().as_f32().unwrap().to_vec()).unwrap())
}

#[expect(clippy::reversed_empty_ranges, reason = "no step")]
pub const NONE: std::ops::RangeInclusive<u64> = 1..=0;

fn trainer(options: &TrainOptions, devices: usize, faults: &[(usize, Fault)]) -> Trainer {
    let speeds: Vec<_> = (0..devices).map(|_| speed(0.0, 1.0)).collect();
    simulated::trainer(options, &speeds, faults).unwrap().0
}

fn run(action: OnLossSpike, devices: usize, data: &Arc<dyn Dataset>, faults: &[(usize, Fault)]) -> (Weights, Recorder) {
    let mut trainer = trainer(&options(action), devices, faults);
    let mut recorder = Recorder::default();
    trainer.fit(data, None, &mut recorder).unwrap();
    (agreed_weights(&mut trainer), recorder)
}

fn unapplied(recorder: &Recorder) -> Vec<(u64, Unapplied)> {
    recorder.steps.iter().filter_map(|s: &StepRecord| Some((s.step, s.unapplied?))).collect()
}

#[test]
fn a_poisoned_sample_ruins_the_weights_unless_something_is_done() {
    let (poisoned, clean) = (data(1e4, NONE), data(1.0, NONE));
    let (weights, recorder) = run(OnLossSpike::Ignore, 2, &poisoned, &[]);
    assert_eq!(unapplied(&recorder), []);
    assert!(distance(&weights, &run(OnLossSpike::Ignore, 2, &clean, &[]).0) > 1e3);
    // Nothing is taken for a spike where there is none.
    for action in [OnLossSpike::Skip, OnLossSpike::RollBack] {
        let (_, recorder) = run(action, 2, &clean, &[]);
        assert!(unapplied(&recorder).is_empty() && recorder.rolled_back.is_empty());
    }
}

#[test]
fn skip_leaves_the_steps_update_out() {
    let (poisoned, without) = (data(1e4, NONE), data(1e4, SPIKE..=SPIKE));
    for devices in [1, 2] {
        let (weights, recorder) = run(OnLossSpike::Skip, devices, &poisoned, &[]);
        assert_eq!(unapplied(&recorder), [(SPIKE, Unapplied::LossSpike)]);
        let spike = &recorder.steps[SPIKE as usize];
        assert!(spike.loss > 1e6, "the spike is on record");
        assert!(spike.gradient_norm.is_nan(), "and no gradient was measured");
        assert!(recorder.epochs[0].contains("1 skipped"), "{:?}", recorder.epochs);
        assert_eq!(weights, run(OnLossSpike::Ignore, devices, &without, &[]).0, "{devices} devices");
    }
}

#[test]
fn roll_back_leaves_out_the_batches_from_the_snapshot_to_the_spike() {
    let (poisoned, without) = (data(1e4, NONE), data(1e4, SNAPSHOT..=SPIKE));
    for devices in [1, 2] {
        let (weights, recorder) = run(OnLossSpike::RollBack, devices, &poisoned, &[]);
        assert_eq!(recorder.rolled_back, [SNAPSHOT]);
        let left_out: Vec<_> = (SNAPSHOT..=SPIKE).map(|step| (step, Unapplied::LeftOut)).collect();
        assert_eq!(unapplied(&recorder), left_out);
        assert_eq!(recorder.steps.len() as u64, STEPS, "every step is on record once");
        assert_eq!(weights, run(OnLossSpike::Ignore, devices, &without, &[]).0, "{devices} devices");
    }
}

/// Batch norm beside its input: the poisoned sample makes a spike, and would make a mark on the running statistics.
#[test]
fn running_statistics_know_nothing_of_what_was_left_out() {
    let norm = Residual::new(Block::new().layer(BatchNorm::of(4)));
    let task = Task::regression(Sequential::new([simulated::FEATURES]).layer(norm).linear(1), [1]);
    for devices in [devices(1), devices(2)] {
        let run = |action, data: &Arc<dyn Dataset>| {
            let options = TrainOptions { schedule: Schedule::constant(0.005), ..options(action) };
            let mut trainer = trainer_on(&devices, &task, &options);
            let mut recorder = Recorder::default();
            trainer.fit(data, None, &mut recorder).unwrap();
            (agreed_weights(&mut trainer), unapplied(&recorder).len() as u64)
        };
        for (action, first) in [(OnLossSpike::Skip, SPIKE), (OnLossSpike::RollBack, SNAPSHOT)] {
            let (weights, left_out) = run(action, &data(1e4, NONE));
            assert_eq!(left_out, SPIKE + 1 - first);
            let (_, steps) = weights.iter().find(|(name, _)| name.ends_with("num_batches_tracked")).unwrap();
            assert_eq!(steps[..], [(STEPS - left_out) as f32]);
            assert_eq!(weights, run(OnLossSpike::Ignore, &data(1e4, first..=SPIKE)).0, "{action:?}");
        }
    }
}

#[test]
fn what_is_left_out_is_part_of_the_runs_state() {
    let poisoned = data(1e4, NONE);
    let (expected, _) = run(OnLossSpike::RollBack, 2, &poisoned, &[]);
    for stop in [SNAPSHOT + 2, SPIKE + 5] {
        let mut first = trainer(&options(OnLossSpike::RollBack), 2, &[]);
        // The roll-back happens before the training comes to the step at which it stops.
        let mut recorder = Recorder::default();
        first.fit(&poisoned, None, &mut Stop { at: stop, recorder: &mut recorder }).unwrap();
        assert_eq!(recorder.rolled_back, [SNAPSHOT]);
        let snapshot = first.snapshot().unwrap();
        assert_eq!(snapshot.step, stop);
        let mut resumed = trainer(&options(OnLossSpike::RollBack), 2, &[]);
        resumed.restore(&snapshot).unwrap();
        let mut rest = Recorder::default();
        resumed.fit(&poisoned, None, &mut rest).unwrap();
        assert!(rest.rolled_back.is_empty(), "it does not happen again");
        assert_eq!(agreed_weights(&mut resumed), expected, "stopped at step {stop}");
    }
}

/// Stops when training comes to a step for the last time, which is after it went back.
struct Stop<'a> {
    at: u64,
    recorder: &'a mut Recorder,
}

impl everygpu::train::Observer for Stop<'_> {
    fn observe(
        &mut self,
        progress: &everygpu::train::Progress<'_>,
        trainer: &mut Trainer,
    ) -> everygpu::error::Result<everygpu::train::Flow> {
        self.recorder.observe(progress, trainer)?;
        let there = !self.recorder.rolled_back.is_empty() && trainer.position().step == self.at;
        Ok(if there { everygpu::train::Flow::Stop } else { everygpu::train::Flow::Continue })
    }
}

/// The lead is lost after training went back from the spike, and it goes back to the same snapshot once more.
#[test]
fn the_snapshot_knows_what_is_left_out() {
    let (poisoned, without) = (data(1e4, NONE), data(1e4, SNAPSHOT..=SPIKE));
    // 66 steps with the spike's, of which none is computed again.
    let lost = [(0, fault(Phase::Gradients, SPIKE + 8, &Kind::Error))];
    let (weights, recorder) = run(OnLossSpike::RollBack, 3, &poisoned, &lost);
    assert_eq!((recorder.lost.as_slice(), recorder.rolled_back.as_slice()), (&[0][..], &[SNAPSHOT, SNAPSHOT][..]));
    let error = distance(&weights, &run(OnLossSpike::Ignore, 3, &without, &[]).0);
    assert!(error <= 2e-6, "{error:.1e}");
}

#[test]
fn spikes_without_end_stop_the_training() {
    let options = TrainOptions { nonfinite_limit: 3, ..options(OnLossSpike::Skip) };
    let (n, features) = (STEPS as usize * BATCH, simulated::FEATURES);
    let inputs: Vec<f32> = (0..n * features).map(|i| if i / features / BATCH >= 60 { 1e3 } else { 1.0 }).collect();
    let targets: Vec<f32> = (0..n).map(|i| (i % 3) as f32).collect();
    let data: Arc<dyn Dataset> = Arc::new(in_order(&inputs, &targets, features, &options));
    let error = trainer(&options, 2, &[]).fit(&data, None, &mut Recorder::default()).unwrap_err().to_string();
    assert!(error.contains("the loss was far above those before in 3 updates in a row, up to step 62"), "{error}");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |options: TrainOptions| options.validate().unwrap_err().to_string();
    let roll_back = options(OnLossSpike::RollBack);
    assert!(refused(TrainOptions { snapshot_every: 0, ..roll_back.clone() }).contains("train.snapshot_every"));
    let loss_spike = SpikePolicy { threshold: f64::NAN, ..roll_back.loss_spike };
    assert!(refused(TrainOptions { loss_spike, ..roll_back }).contains("train.spike_threshold"));
}
