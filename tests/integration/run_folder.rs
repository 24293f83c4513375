//! What a run folder holds when training goes back, and that a run which is killed then goes on from what it holds.

use std::path::Path;
use std::sync::Arc;

use everygpu::checkpoint::Store;
use everygpu::data::Dataset;
use everygpu::error::{Error, Result};
use everygpu::run::{CheckpointPolicy, RunFolder};
use everygpu::train::{Flow, Observer, OnLossSpike, Progress, TrainOptions, Trainer, Unapplied};
use serde_json::Value;

use crate::simulated::{self, Fault, Kind, Phase, speed};
use crate::spikes::{self, NONE, SNAPSHOT, SPIKE, STEPS};
use crate::training::*;
use crate::workers::fault;

fn policy(every: u64) -> CheckpointPolicy {
    CheckpointPolicy { every, keep_last: 2, keep_best: 1 }
}

fn trainer(options: &TrainOptions, devices: usize, faults: &[(usize, Fault)]) -> Trainer {
    let speeds: Vec<_> = (0..devices).map(|_| speed(0.0, 1.0)).collect();
    simulated::trainer(options, &speeds, faults).unwrap().0
}

fn lines(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn steps(folder: &Path) -> Vec<u64> {
    lines(folder, "metrics.jsonl").iter().map(|line| line["step"].as_u64().unwrap()).collect()
}

fn newest(folder: &Path) -> u64 {
    Store::open(RunFolder::checkpoints(folder)).unwrap().latest().unwrap().unwrap().step
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &to);
        } else {
            std::fs::copy(&entry, &to).unwrap();
        }
    }
}

/// A run that is killed this many steps after it has gone back: what is on the disk then stays in `killed`.
struct Killed<'a> {
    folder: RunFolder,
    steps: Option<u64>,
    after: u64,
    killed: &'a Path,
}

impl Observer for Killed<'_> {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        let flow = self.folder.observe(progress, trainer)?;
        match progress {
            Progress::RolledBack(_) => self.steps = Some(0),
            Progress::Step(_) => self.steps = self.steps.map(|steps| steps + 1),
            _ => {}
        }
        if self.steps == Some(self.after) {
            copy(self.folder.path(), self.killed);
            return Err(Error::Training("killed".into()));
        }
        Ok(flow)
    }
}

/// Trains until it is killed, `after` steps after it went back, and goes on from what is left in `folder`.
fn killed(
    folder: &Path,
    options: &TrainOptions,
    faults: &[(usize, Fault)],
    data: &Arc<dyn Dataset>,
    after: u64,
) -> (u64, Trainer) {
    let parent = tempfile::tempdir().unwrap();
    let run = RunFolder::create(parent.path(), "run", policy(1)).unwrap();
    let mut killed = Killed { folder: run, steps: None, after, killed: folder };
    let error = trainer(options, 3, faults).fit(data, None, &mut killed).unwrap_err().to_string();
    assert!(error.contains("killed"), "{error}");
    let from = newest(folder);
    let mut trainer = trainer(options, 3, &[]);
    let latest = Store::open(RunFolder::checkpoints(folder)).unwrap().latest().unwrap().unwrap();
    trainer.restore(&Store::load(latest.path).unwrap()).unwrap();
    let mut run = RunFolder::reopen(folder, trainer.position(), policy(1)).unwrap();
    trainer.fit(data, None, &mut run).unwrap();
    (from, trainer)
}

/// Whenever it is killed, also with checkpoints of the way that it left in the folder, which are gone in the end.
#[test]
fn a_way_back_from_a_spike_is_not_undone_by_a_kill() {
    let options = spikes::options(OnLossSpike::RollBack);
    let (poisoned, without) = (spikes::data(1e4, NONE), spikes::data(1e4, SNAPSHOT..=SPIKE));
    let mut undisturbed = trainer(&spikes::options(OnLossSpike::Ignore), 3, &[]);
    undisturbed.fit(&without, None, &mut Recorder::default()).unwrap();
    let expected = agreed_weights(&mut undisturbed);
    for after in [0, 1, 3, SPIKE - SNAPSHOT, SPIKE - SNAPSHOT + 1] {
        let folder = tempfile::tempdir().unwrap();
        let (from, mut resumed) = killed(folder.path(), &options, &[], &poisoned, after);
        assert_eq!(from, SNAPSHOT + after, "{after} steps later");
        assert_eq!(agreed_weights(&mut resumed), expected, "{after} steps later");
        assert_eq!(steps(folder.path()), (0..STEPS).collect::<Vec<_>>());
        for line in lines(folder.path(), "metrics.jsonl") {
            let left_out = (SNAPSHOT..=SPIKE).contains(&line["step"].as_u64().unwrap());
            let why = if left_out { Value::from(Unapplied::LeftOut.to_string()) } else { Value::Null };
            assert_eq!((&line["unapplied"], line["gradient_norm"].is_null()), (&why, left_out), "{line}");
        }
        let rolled_back = |line: &&Value| line["event"] == "rolled back" && line["step"] == SNAPSHOT;
        assert_eq!(lines(folder.path(), "events.jsonl").iter().filter(rolled_back).count(), 1, "{after} steps later");
        let names = std::fs::read_dir(RunFolder::checkpoints(folder.path())).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.iter().all(|name| name.starts_with("step-")), "{names:?}");
    }
}

/// A lost lead's steps are done again; what was saved of them counts all the same.
#[test]
fn checkpoints_beyond_the_snapshot_of_a_lost_lead_stay_valid() {
    let options = TrainOptions { snapshot_every: 20, ..spikes::options(OnLossSpike::Ignore) };
    let data = spikes::data(1.0, NONE);
    let mut undisturbed = trainer(&options, 3, &[]);
    undisturbed.fit(&data, None, &mut Recorder::default()).unwrap();
    let expected = agreed_weights(&mut undisturbed);
    let lost = [(0, fault(Phase::Gradients, 29, &Kind::Error))];
    for after in [0, 1, 7, 8, 12] {
        let folder = tempfile::tempdir().unwrap();
        let (from, mut resumed) = killed(folder.path(), &options, &lost, &data, after);
        assert_eq!(from, 28.max(20 + after), "{after} steps later");
        let error = distance(&agreed_weights(&mut resumed), &expected);
        assert!(error <= 2e-6, "{after} steps later: {error:.1e}");
        assert_eq!(steps(folder.path()), (0..STEPS).collect::<Vec<_>>(), "{after} steps later");
    }
}

/// Every step has its line once in a run that goes on, too, and so has every epoch.
#[test]
fn steps_that_are_done_again_have_one_line() {
    let options = TrainOptions { epochs: 3, snapshot_every: 0, ..spikes::options(OnLossSpike::Ignore) };
    let parent = tempfile::tempdir().unwrap();
    let mut run = RunFolder::create(parent.path(), "run", policy(7)).unwrap();
    let lost = [(0, fault(Phase::Gradients, 3 + STEPS, &Kind::Error))];
    let mut faulty = trainer(&options, 3, &lost);
    faulty.fit(&spikes::data(1.0, NONE), None, &mut run).unwrap();
    let path = run.path().to_owned();
    drop(run);
    assert_eq!(steps(&path), (0..3 * STEPS).collect::<Vec<_>>());
    let epochs: Vec<_> = lines(&path, "epochs.jsonl").iter().map(|line| line["epoch"].as_u64()).collect();
    assert_eq!(epochs, [Some(0), Some(1), Some(2)]);
}

/// Training goes back to its first step and stands there when the last device fails: not for nothing.
#[test]
fn a_folder_with_checkpoints_is_kept_where_training_ends_at_its_first_step() {
    let options = TrainOptions { snapshot_every: 1000, ..spikes::options(OnLossSpike::Ignore) };
    let lost = |device, call| (device, fault(Phase::Gradients, call, &Kind::Error));
    for (every, used) in [(3, true), (0, false)] {
        let parent = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(parent.path(), "run", policy(every)).unwrap();
        let path = run.path().to_owned();
        let mut failing = trainer(&options, 2, &[lost(0, 8), lost(1, 9)]);
        failing.fit(&spikes::data(1.0, NONE), None, &mut run).unwrap_err();
        assert_eq!(failing.position().step, 0);
        // Without a checkpoint there is nothing to go on from, and the steps that were undone have no lines.
        assert_eq!(run.discard_if_unused().unwrap(), !used);
        assert_eq!(path.exists(), used);
        if used {
            assert_eq!((newest(&path), steps(&path)), (6, (0..6).collect()));
        }
    }
}

#[test]
fn a_folder_is_removed_only_where_all_of_it_is_the_runs_own() {
    let parent = tempfile::tempdir().unwrap();
    let create = || RunFolder::create(parent.path(), "run", policy(0)).unwrap();
    let run = create();
    run.write(RunFolder::CONFIG, "# a run").unwrap();
    assert!(run.discard_if_unused().unwrap());
    let run = create();
    let path = run.path().to_owned();
    assert!(path.ends_with("run-1"));
    run.write(RunFolder::CONFIG, "# a run").unwrap();
    run.write("notes.txt", "mine").unwrap();
    assert!(!run.discard_if_unused().unwrap());
    assert!(path.join("notes.txt").exists() && path.join(RunFolder::CONFIG).exists());
}
