//! A run that goes on from a snapshot is, bit for bit, the run that was not interrupted.

use std::sync::Arc;

use everygpu::checkpoint::{Snapshot, Store};
use everygpu::data::{Dataset, TensorDataset};
use everygpu::error::Result;
use everygpu::nn::Sequential;
use everygpu::nn::layers::BatchNorm;
use everygpu::optim::{Decay, Optimizer, Schedule};
use everygpu::tensor::{HostTensor, Named};
use everygpu::train::{Flow, Observer, Progress, Split, StepRecord, Task, TrainOptions, Trainer};

use crate::training::*;

fn task() -> Task {
    Task::classification(Sequential::new([7]).linear(16).tanh().dropout(0.3).linear(5))
}

/// 27 samples in batches of 8: four steps an epoch.
fn data() -> Arc<dyn Dataset> {
    Arc::new(classes(27, &[7], 5, 1).with_weights(uneven_weights(27)).unwrap())
}

fn settings() -> TrainOptions {
    TrainOptions {
        epochs: 4,
        optimizer: Optimizer::adamw(),
        schedule: Schedule::cosine(0.02).with_warmup(5),
        split: Split::Even,
        deterministic: true,
        clip_norm: Some(0.5),
        ..options(8)
    }
}

/// Records, and takes a snapshot after the step of this number, or after the epoch.
struct Saver {
    recorder: Recorder,
    at: u64,
    after_epoch: bool,
    saved: Option<Snapshot>,
}

impl Saver {
    fn new(at: u64, after_epoch: bool) -> Self {
        Self { recorder: Recorder::default(), at, after_epoch, saved: None }
    }
}

impl Observer for Saver {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        let due = trainer.position().step == self.at;
        if due && matches!(progress, Progress::Epoch(_)) == self.after_epoch {
            self.saved = Some(trainer.snapshot()?);
        }
        self.recorder.observe(progress, trainer)
    }
}

/// What of a record must repeat: all but the times.
fn repeatable(record: &StepRecord) -> String {
    let StepRecord {
        step, epoch, step_in_epoch, samples, loss, accuracy, learning_rate, gradient_norm, applied, ..
    } = record;
    let exact = [*loss, accuracy.unwrap_or(-1.0), *learning_rate, *gradient_norm].map(f64::to_bits);
    format!("{step} {epoch} {step_in_epoch} {samples} {exact:x?} {applied} {:?}", record.shards)
}

fn bits(weights: &Weights) -> Vec<u32> {
    weights.iter().flat_map(|(_, v)| v).map(|v| v.to_bits()).collect()
}

#[test]
fn a_resumed_run_is_the_uninterrupted_one() {
    // In the middle of an epoch, before and after an epoch's last step is closed, and at the start.
    resumes(&task(), &settings(), &[(6, false), (4, false), (4, true), (1, false), (15, false)]);
}

/// With a schedule that goes by the losses of earlier epochs, and a moving average of the weights, which they are
/// losses of.
#[test]
fn a_resumed_run_goes_on_with_its_average_and_its_plateau() {
    // No loss is half of the best one: the rate falls after each epoch but the first.
    let decay = Decay::Plateau { factor: 0.5, patience: 0, threshold: 0.5 };
    let schedule = Schedule::new(0.02, decay).with_warmup(2);
    let settings = TrainOptions { schedule, ema_decay: Some(0.8), optimizer: Optimizer::lamb(), ..settings() };
    let record = resumes(&task(), &settings, &[(6, false), (8, false), (8, true), (13, false)]);
    let rates: Vec<f64> = record.steps.iter().step_by(4).map(|step| step.learning_rate).collect();
    assert_eq!(rates, [0.01, 0.02, 0.01, 0.005]);
}

#[test]
fn a_resumed_run_with_batch_norm_is_the_uninterrupted_one() {
    let model = Sequential::new([7]).linear(16).layer(BatchNorm::of(2)).tanh().dropout(0.3).linear(5);
    let task = Task::classification(model);
    resumes(&task, &settings(), &[(6, false), (4, true)]);
    resumes(&task, &TrainOptions { ema_decay: Some(0.8), ..settings() }, &[(6, false), (8, true)]);
}

/// Runs of `task` that go on from snapshots at these steps (before or after the epoch's end) are the whole run, whose
/// record this is.
fn resumes(task: &Task, settings: &TrainOptions, snapshots: &[(u64, bool)]) -> Recorder {
    let (devices, folder) = (devices(2), tempfile::tempdir().unwrap());
    let store = Store::open(folder.path()).unwrap();
    let mut record = Recorder::default();
    for &(at, after_epoch) in snapshots {
        let what = format!("snapshot at step {at}{}", if after_epoch { ", after the epoch" } else { "" });
        let mut trainer = trainer_on(&devices, task, settings);
        let mut whole = Saver::new(at, after_epoch);
        trainer.fit(&data(), Some(&data()), &mut whole).unwrap();
        let expected = agreed_weights(&mut trainer);
        let end = trainer.snapshot().unwrap();
        drop(trainer);
        let path = store.save(&whole.saved.unwrap(), None).unwrap();
        let loaded = Store::load(&path).unwrap();

        let mut resumed = trainer_on(&devices, task, settings);
        resumed.restore(&loaded).unwrap();
        assert_eq!(resumed.position().step, at, "{what}");
        let mut rest = Recorder::default();
        let report = resumed.fit(&data(), Some(&data()), &mut rest).unwrap();
        assert_eq!(report.steps, 16, "{what}");
        assert_eq!(bits(&agreed_weights(&mut resumed)), bits(&expected), "{what}");
        let later: Vec<String> = whole.recorder.steps[at as usize..].iter().map(repeatable).collect();
        assert_eq!(rest.steps.iter().map(repeatable).collect::<Vec<_>>(), later, "{what}");
        let epochs = whole.recorder.epochs.len() - rest.epochs.len();
        assert_eq!(rest.epochs, whole.recorder.epochs[epochs..], "{what}");
        assert_eq!(epochs as u64, if after_epoch { at / 4 } else { (at - 1) / 4 }, "{what}");
        let again = resumed.snapshot().unwrap();
        assert_eq!((again.step, &again.optimizer), (end.step, &end.optimizer), "{what}");
        record = whole.recorder;
    }
    record
}

#[test]
fn a_run_without_its_moments_or_position_would_be_seen() {
    let devices = devices(2);
    let mut trainer = trainer_on(&devices, &task(), &settings());
    let mut whole = Saver::new(6, false);
    trainer.fit(&data(), None, &mut whole).unwrap();
    let expected = bits(&agreed_weights(&mut trainer));
    let saved = whole.saved.unwrap();
    let resumed = |snapshot: &Snapshot| {
        let mut trainer = trainer_on(&devices, &task(), &settings());
        trainer.restore(snapshot).unwrap();
        trainer.fit(&data(), None, &mut Recorder::default()).unwrap();
        bits(&agreed_weights(&mut trainer))
    };
    assert_eq!(resumed(&saved), expected);
    let mut other = saved.clone();
    let (_, moment) = other.optimizer.iter_mut().next().unwrap();
    let values = moment.as_f32().unwrap().iter().map(|v| v * 1.001).collect();
    *moment = HostTensor::f32(moment.shape().clone(), values).unwrap();
    assert_ne!(resumed(&other), expected);
    let mut other = saved.clone();
    other.step = 7;
    other.state["position"]["step"] = 7.into();
    other.state["position"]["step_in_epoch"] = 3.into();
    assert_ne!(resumed(&other), expected);
}

/// Also after a step whose loss was infinite, which JSON has no number for.
#[test]
fn a_snapshot_after_a_skipped_step_can_be_restored() {
    let task = Task::regression(Sequential::new([1]).linear(1), [1]);
    let inputs = HostTensor::f32([8, 1], (0..8).map(|i| if i == 3 { 1e30 } else { i as f32 }).collect()).unwrap();
    let targets = HostTensor::f32([8, 1], vec![1.0; 8]).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(TensorDataset::regression(inputs, targets).unwrap());
    let options = TrainOptions { epochs: 2, schedule: Schedule::constant(0.01), ..options(2) };
    let (devices, folder) = (devices(1), tempfile::tempdir().unwrap());
    let mut plain = Recorder::default();
    trainer_on(&devices, &task, &options).fit(&data, None, &mut plain).unwrap();
    let skipped: Vec<u64> = plain.steps.iter().filter(|s| !s.applied).map(|s| s.step).collect();
    assert_eq!(skipped.len(), 2);
    let mut trainer = trainer_on(&devices, &task, &options);
    let mut whole = Saver::new(skipped[1] + 1, false);
    trainer.fit(&data, None, &mut whole).unwrap();
    let path = Store::open(folder.path()).unwrap().save(&whole.saved.unwrap(), None).unwrap();
    let mut resumed = trainer_on(&devices, &task, &options);
    resumed.restore(&Store::load(path).unwrap()).unwrap();
    let mut rest = Recorder::default();
    resumed.fit(&data, None, &mut rest).unwrap();
    assert_eq!(rest.epochs, whole.recorder.epochs[1..]);
    assert_eq!(bits(&agreed_weights(&mut resumed)), bits(&agreed_weights(&mut trainer)));
}

/// The snapshot as it was before a checkpoint named its optimizer.
fn unnamed(snapshot: Snapshot) -> Snapshot {
    let mut state = snapshot.state;
    state.as_object_mut().and_then(|fields| fields.remove("optimizer")).expect("the optimizer is named");
    Snapshot { state, ..snapshot }
}

#[test]
fn a_foreign_snapshot_is_refused_and_changes_nothing() {
    let devices = devices(2);
    let snapshot_of = |task: &Task, options: &TrainOptions| {
        let mut trainer = trainer_on(&devices, task, options);
        let data: Arc<dyn Dataset> = Arc::new(classes(27, &[7], 5, 1));
        train(&mut trainer, &data, 3);
        trainer.snapshot().unwrap()
    };
    let model = |hidden: usize| Task::classification(Sequential::new([7]).linear(hidden).tanh().linear(5));
    let deeper = Task::classification(Sequential::new([7]).linear(16).tanh().linear(5).linear(5));
    let own = snapshot_of(&model(16), &settings());
    let mut truncated = own.clone();
    let kept = own.weights.iter().filter(|(name, _)| *name != "linear_2.bias");
    truncated.weights = Named::of(kept.map(|(name, tensor)| (name, tensor.clone()))).unwrap();
    let mut transposed = own.clone();
    let (name, tensor) = transposed.weights.iter_mut().find(|(_, t)| t.shape().rank() == 2).unwrap();
    let name = name.clone();
    *tensor = HostTensor::f32([tensor.shape()[1], tensor.shape()[0]], tensor.as_f32().unwrap().to_vec()).unwrap();
    let mut stateless = own.clone();
    stateless.state = serde_json::json!({ "epoch": 3 });
    let foreign = [
        (
            "another width",
            snapshot_of(&model(8), &settings()),
            "wrong shape: linear_1.weight is [8, 7], expected [16, 7]",
        ),
        ("another depth", snapshot_of(&deeper, &settings()), "extra: linear_3.weight"),
        ("a missing weight", truncated, "missing: linear_2.bias"),
        ("a transposed weight", transposed, name.as_str()),
        (
            "another optimizer",
            snapshot_of(&model(16), &TrainOptions { optimizer: Optimizer::sgd(0.9), ..settings() }),
            "optimizer.kind: the checkpoint was made with sgd, this run has adamw; put it back as it was, or start a new run",
        ),
        (
            "an optimizer of the same moments",
            snapshot_of(&model(16), &TrainOptions { optimizer: Optimizer::adam(), ..settings() }),
            "optimizer.kind: the checkpoint was made with adam, this run has adamw",
        ),
        (
            "an optimizer that is not named",
            unnamed(snapshot_of(&model(16), &TrainOptions { optimizer: Optimizer::sgd(0.0), ..settings() })),
            "optimizer: the checkpoint was made with no moments, this run has the moments exp_avg, exp_avg_sq; put it back",
        ),
        ("another seed", snapshot_of(&model(16), &TrainOptions { seed: 6, ..settings() }), "train.seed"),
        ("another batch", snapshot_of(&model(16), &TrainOptions { batch: 9, ..settings() }), "train.batch"),
        ("another program's state", stateless, "state is not one of this program"),
    ];
    let mut trainer = trainer_on(&devices, &model(16), &settings());
    let data: Arc<dyn Dataset> = Arc::new(classes(27, &[7], 5, 1));
    train(&mut trainer, &data, 5);
    let before = trainer.snapshot().unwrap();
    for (what, snapshot, words) in foreign {
        let error = trainer.restore(&snapshot).unwrap_err().to_string();
        assert!(error.contains(words), "{what}: {error}");
        assert_eq!(trainer.snapshot().unwrap(), before, "{what}");
    }
    agreed_weights(&mut trainer);
    trainer.restore(&own).unwrap();
    assert_eq!(trainer.snapshot().unwrap(), own);

    // The other way round: state that this optimizer has no use for is not dropped in silence.
    let mut plain = trainer_on(&devices, &model(16), &TrainOptions { optimizer: Optimizer::sgd(0.0), ..settings() });
    let error = plain.restore(&unnamed(own)).unwrap_err().to_string();
    assert!(error.contains("made with the moments exp_avg, exp_avg_sq, this run has no moments"), "{error}");
}

/// What no run can have come to, whole as the file that says so may be.
#[test]
fn an_impossible_position_is_refused() {
    let devices = devices(1);
    let data: Arc<dyn Dataset> = Arc::new(classes(27, &[7], 5, 1));
    let task = Task::classification(Sequential::new([7]).linear(5));
    let mut trainer = trainer_on(&devices, &task, &settings());
    train(&mut trainer, &data, 6);
    let own = trainer.snapshot().unwrap();
    let mut forged = vec![(Snapshot { step: 5, ..own.clone() }, "it is one of step 6")];
    for (key, value, words) in [
        ("step", 7, "it is one of step 7"),
        ("epoch", u64::MAX, "epoch is 18446744073709551615"),
        ("epoch", 5, "epoch is 5"),
        ("step_in_epoch", 7, "step_in_epoch is 7"),
        ("applied", 7, "applied is 7"),
        ("skipped", u64::MAX, "skipped is"),
        ("skipped_in_a_row", 7, "skipped_in_a_row is 7"),
        ("samples", u64::MAX, "samples is"),
    ] {
        let mut other = own.clone();
        other.state["position"][key] = value.into();
        forged.push((other, words));
    }
    let mut far = Snapshot { step: u64::MAX, ..own.clone() };
    far.state["position"]["step"] = u64::MAX.into();
    forged.push((far, "a run has 9007199254740992 steps at most"));
    let mut noted = own.clone();
    noted.state["position"]["losses"]["count"] = u64::MAX.into();
    forged.push((noted, "losses.count is"));
    let mut split = own.clone();
    split.state["split"] = vec![u64::MAX].into();
    forged.push((split, "the saved split"));
    for (snapshot, words) in forged {
        let error = trainer.restore(&snapshot).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(trainer.snapshot().unwrap(), own, "{words}");
    }
    trainer.restore(&own).unwrap();
}

/// On another number of devices a snapshot can be restored; rounding differs then.
#[test]
fn a_snapshot_moves_to_another_number_of_devices() {
    let devices = devices(3);
    let mut whole = Saver::new(6, false);
    let mut trainer = trainer_on(&devices[..2], &task(), &settings());
    trainer.fit(&data(), None, &mut whole).unwrap();
    let expected = agreed_weights(&mut trainer);
    for count in [1, 3] {
        let mut resumed = trainer_on(&devices[..count], &task(), &settings());
        resumed.restore(whole.saved.as_ref().unwrap()).unwrap();
        resumed.fit(&data(), None, &mut Recorder::default()).unwrap();
        let error = distance(&agreed_weights(&mut resumed), &expected);
        // AdamW with epsilon 1e-8 amplifies the rounding of gradients that are nearly zero; the rate ends at 0.
        assert!(error < 1e-3, "{count} devices: {error:.1e}");
    }
}
