//! Batch norm in training: pooled running statistics, padding, skipped steps, compression, and what cannot work.

use std::sync::Arc;

use everygpu::data::{Batch, Dataset, TensorDataset};
use everygpu::gpu::{Device, Duty, Engine, MicroBatch};
use everygpu::graph::Graph;
use everygpu::kernel::Step;
use everygpu::nn::Sequential;
use everygpu::nn::layers::BatchNorm;
use everygpu::op::{self, Emit};
use everygpu::optim::{Optimizer, Schedule};
use everygpu::plan::{Layout, Plan, Storage};
use everygpu::rng::Stream;
use everygpu::tensor::{HostTensor, Named, TensorType};
use everygpu::train::{Compression, MicroBatchSize, Split, Task, TrainOptions, Trainer};

use crate::training::*;

/// One number through batch norm.
fn one_number(norm: BatchNorm) -> Task {
    Task::regression(Sequential::new([1]).layer(norm).named("norm"), [1])
}

fn batch(inputs: &[f32], targets: &[f32]) -> Arc<Batch> {
    let column = |values: &[f32]| HostTensor::f32([values.len(), 1], values.to_vec()).unwrap();
    let data = TensorDataset::regression(column(inputs), column(targets)).unwrap();
    Arc::new(data.gather(&(0..inputs.len()).collect::<Vec<_>>()).unwrap())
}

fn named(trainer: &mut Trainer, name: &str) -> Vec<f32> {
    agreed_weights(trainer).into_iter().find(|(n, _)| n.ends_with(name)).expect("the model has it").1
}

/// [0, 0] and [3, 3, 3, 3] pooled: mean 2 and variance 2, however they are divided into groups, devices and
/// micro-batches. (The mean of the means is 1.5, that of the variances 0.)
#[test]
fn running_statistics_are_those_of_all_samples_together() {
    let devices = devices(3);
    let batch = batch(&[0.0, 0.0, 3.0, 3.0, 3.0, 3.0], &[1.0; 6]);
    let cases: [(usize, usize, &[f64], &[usize]); 6] = [
        (6, 6, &[1.0], &[6]),
        (2, 2, &[1.0], &[6]),
        (2, 4, &[1.0, 2.0], &[2, 4]),
        (1, 1, &[2.0, 1.0, 3.0], &[2, 1, 3]),
        (4, 4, &[1.0, 1.0], &[4, 2]),
        (32, 32, &[1.0, 1.0], &[6, 0]),
    ];
    for (group, rows, weights, shards) in cases {
        let options = TrainOptions {
            micro_batch: MicroBatchSize::Rows(rows),
            split: Split::Weights(weights.to_vec()),
            ..options(6)
        };
        let task = one_number(BatchNorm { momentum: 1.0, ..BatchNorm::of(group) });
        let mut trainer = trainer_on(&devices[..weights.len()], &task, &options);
        for step in 1..=2 {
            let record = trainer.step_on(&batch, 10).unwrap();
            assert_eq!(record.shards, shards);
            let found = ["running_mean", "running_var", "num_batches_tracked"].map(|n| named(&mut trainer, n)[0]);
            let right = [2.0, 2.0, step as f32];
            let close = found.iter().zip(right).all(|(f, r)| (f - r).abs() < 1e-6);
            assert!(close, "groups of {group} as {shards:?}, step {step}: {found:?}");
        }
    }
}

/// A step moves them by the momentum, from 0 and 1; far from zero as well.
#[test]
fn running_statistics_follow_by_the_momentum() {
    let mut trainer =
        trainer_on(&devices(1), &one_number(BatchNorm { momentum: 0.25, ..BatchNorm::of(2) }), &options(4));
    let batch = batch(&[999.0, 1001.0, 1001.0, 999.0], &[0.0; 4]);
    let mut expected = (0.0, 1.0);
    for _ in 0..60 {
        trainer.step_on(&batch, 100).unwrap();
        expected = (0.75 * expected.0 + 0.25 * 1000.0, 0.75 * expected.1 + 0.25 * 1.0);
        let mean = f64::from(named(&mut trainer, "running_mean")[0]);
        assert!((mean - expected.0).abs() < 1e-3, "{mean} instead of {}", expected.0);
    }
    let variance = f64::from(named(&mut trainer, "running_var")[0]);
    assert!((variance - 1.0).abs() < 1e-4, "{variance}");
}

/// After one update from 0 and 1, whatever lies between the mean and 0, and however the samples were divided.
#[test]
fn the_running_variance_is_right_far_from_zero() {
    let devices = devices(3);
    let mut stream = Stream::new(4, "samples");
    for ratio in [0.0, 1_000.0, 10_000.0] {
        let inputs: Vec<f32> = (0..24).map(|_| (0.01 * (ratio + stream.normal())) as f32).collect();
        let of = |value: &dyn Fn(f64) -> f64| inputs.iter().map(|&x| value(f64::from(x))).sum::<f64>() / 24.0;
        let mean = of(&|x| x);
        let variance = of(&|x| (x - mean).powi(2));
        let batch = batch(&inputs, &[0.0; 24]);
        for (group, rows, weights) in [(24, 24, &[1.0][..]), (4, 24, &[1.0]), (4, 8, &[1.0]), (4, 8, &[1.0, 3.0, 2.0])]
        {
            let options = TrainOptions {
                micro_batch: MicroBatchSize::Rows(rows),
                split: Split::Weights(weights.to_vec()),
                ..options(24)
            };
            let task = one_number(BatchNorm { momentum: 1.0, ..BatchNorm::of(group) });
            // All running statistics in one bucket, and in one each.
            for max_binding in [ONE_BUCKET, 256] {
                let layout = layout(&task, max_binding);
                let mut trainer =
                    trainer_with(&devices[..weights.len()], &task, &options, &layout, |_, w| Box::new(w)).unwrap();
                trainer.step_on(&batch, 10).unwrap();
                let found = ["running_mean", "running_var"].map(|name| f64::from(named(&mut trainer, name)[0]));
                let errors = [(found[0] - mean).abs() / variance.sqrt(), (found[1] / variance - 1.0).abs()];
                assert!(errors.iter().all(|e| *e < 5e-3), "ratio {ratio}, {group}, {rows}, {weights:?}: {errors:?}");
            }
        }
    }
}

/// A short batch is padded to the micro-batch that full ones have; alone, with a micro-batch of its own size, it is
/// not.
#[test]
fn padding_enters_no_statistic_and_no_gradient() {
    let devices = devices(1);
    let model = Sequential::new([2, 3, 3]).conv2d(3, 3, 1).layer(BatchNorm::of(4)).relu().flatten();
    let norm = BatchNorm { epsilon: 0.1, affine: false, ..BatchNorm::of(3) };
    let task = Task::classification(model.linear(5).layer(norm).linear(3));
    let data = classes(24, &[2, 3, 3], 3, 1);
    for rows in [1, 3, 5, 13, 23] {
        let batch = Arc::new(data.gather(&(0..rows).collect::<Vec<_>>()).unwrap());
        let after = |full: usize| {
            let mut trainer = trainer_on(&devices, &task, &options(full));
            let start = agreed_weights(&mut trainer);
            trainer.step_on(&batch, 10).unwrap();
            assert_eq!(trainer.coordinator().micro_batches(), [full]);
            (start, agreed_weights(&mut trainer))
        };
        let ((start, expected), (_, found)) = (after(rows), after(24));
        assert!(distance(&start, &expected) > 1e-3, "{rows} rows: hardly trained");
        let error = distance(&expected, &found);
        assert!(error < 1e-6, "{rows} rows: {error:.1e}");
    }
}

/// A target beyond half of the largest float makes the gradient infinite, and leaves the samples finite.
#[test]
fn a_skipped_step_leaves_running_statistics_alone() {
    let devices = devices(2);
    let task = one_number(BatchNorm::of(2));
    for devices in [&devices[..1], &devices[..]] {
        let mut trainer = trainer_on(devices, &task, &options(4));
        let before = agreed_weights(&mut trainer);
        let skipped = trainer.step_on(&batch(&[1.0, 2.0, 3.0, 4.0], &[1.0, 1.0, -3e38, 1.0]), 10).unwrap();
        assert!(!skipped.applied);
        assert_eq!(agreed_weights(&mut trainer), before);
        assert!(trainer.step_on(&batch(&[1.0, 2.0, 3.0, 4.0], &[1.0; 4]), 10).unwrap().applied);
        assert_eq!(named(&mut trainer, "num_batches_tracked"), [1.0]);
        assert!((named(&mut trainer, "running_mean")[0] - 0.25).abs() < 1e-6);
    }
}

/// Sums over the samples are no gradients: the norm is that of weight and bias alone, and clipping leaves the sums
/// alone.
#[test]
fn the_gradients_norm_is_without_statistics() {
    let batch = batch(&[0.0, 200.0], &[0.0, 0.0]);
    let options = TrainOptions { clip_norm: Some(1e-3), optimizer: Optimizer::sgd(0.0), ..options(2) };
    let norm = BatchNorm { momentum: 1.0, epsilon: 0.0, ..BatchNorm::of(2) };
    let mut trainer = trainer_on(&devices(1), &one_number(norm), &options);
    let record = trainer.step_on(&batch, 10).unwrap();
    // y = (−1, 1), loss y²: the gradients of weight and bias are Σ 2y·y / 2 = 2 and Σ 2y / 2 = 0.
    assert!((record.gradient_norm - 2.0).abs() < 1e-5, "{}", record.gradient_norm);
    assert_eq!(named(&mut trainer, "running_mean"), [100.0]);
    assert!((named(&mut trainer, "running_var")[0] - 1e4).abs() < 0.01);
}

/// In evaluation the running statistics are used: y = (x − 4) / √(9 + ε) · 2 + 1, whatever the batch.
#[test]
fn evaluation_uses_running_statistics() {
    let task = one_number(BatchNorm { epsilon: 0.0, ..BatchNorm::of(2) });
    let inputs = [1.0, 4.0, 10.0, 7.0, -2.0];
    let targets = inputs.map(|x: f32| (x - 4.0) / 3.0 * 2.0 + 1.0 - 0.5);
    let column = |values: &[f32]| HostTensor::f32([values.len(), 1], values.to_vec()).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(TensorDataset::regression(column(&inputs), column(&targets)).unwrap());
    for batch in [1, 2, 3, 5] {
        let mut trainer = trainer_on(&devices(2), &task, &options(batch));
        let values =
            [("weight", 2.0), ("bias", 1.0), ("num_batches_tracked", 7.0), ("running_mean", 4.0), ("running_var", 9.0)];
        let values = values.map(|(name, value)| (format!("norm.{name}"), vec![value]));
        trainer.set_weights(&Named::of(values).unwrap()).unwrap();
        let loss = trainer.evaluate(&data).unwrap().loss();
        assert!((loss - 0.25).abs() < 1e-6, "batches of {batch}: {loss}");
    }
}

/// Sums for running statistics are handed out in f32 beside gradients in half the bits: after one step the statistics
/// are those without compression to the bit, after many the network is close to that. What is held back is of gradients
/// alone, and part of the run's state.
#[test]
fn compression_is_of_gradients_alone() {
    let model = Sequential::new([2, 3, 3]).conv2d(3, 3, 1).layer(BatchNorm::of(8)).relu().flatten();
    let task = Task::classification(model.linear(3));
    let data: Arc<dyn Dataset> = Arc::new(classes(48, &[2, 3, 3], 3, 1));
    let devices = devices(2);
    // All parameters in a bucket of each kind, and in several.
    for max_binding in [ONE_BUCKET, 512] {
        let layout = layout(&task, max_binding);
        let start = |gradient_compression| {
            let options = TrainOptions { gradient_compression, deterministic: true, epochs: 5, ..options(16) };
            let options = TrainOptions { schedule: Schedule::constant(0.01), ..options };
            trainer_with(&devices, &task, &options, &layout, |_, worker| Box::new(worker)).unwrap()
        };
        let after = |compression, steps| {
            let mut trainer = start(compression);
            train(&mut trainer, &data, steps);
            agreed_weights(&mut trainer)
        };
        let (first, last) = (after(Compression::None, 1), after(Compression::None, 15));
        let running = |weights: &Weights| -> Weights {
            let is_running = |name: &str| name.contains("running") || name.contains("tracked");
            Named::of(weights.clone().into_iter().filter(|(name, _)| is_running(name))).unwrap()
        };
        assert_eq!(running(&first).len(), 3);
        for (compression, at_most) in [(Compression::F16, 0.003), (Compression::Bf16, 0.03)] {
            let compressed = after(compression, 1);
            assert_eq!(running(&compressed), running(&first), "{compression:?}");
            assert!(distance(&compressed, &first) > 0.0, "{compression:?} was not used");
            let whole = after(compression, 15);
            let error = distance(&whole, &last);
            assert!(error < at_most, "{compression:?}: {error:.1e}");

            let mut trainer = start(compression);
            train(&mut trainer, &data, 7);
            let snapshot = trainer.snapshot().unwrap();
            let held_back = snapshot.optimizer.iter().filter(|(name, _)| name.contains(".residual_"));
            assert_eq!(held_back.count(), 2 * (first.len() - 3), "by device and trained parameter");
            let mut resumed = start(compression);
            resumed.restore(&snapshot).unwrap();
            train(&mut resumed, &data, 15);
            assert_eq!(agreed_weights(&mut resumed), whole, "{compression:?}: resumed");
        }
    }
}

fn refusal(devices: &[Arc<Device>], norm: BatchNorm, options: &TrainOptions) -> String {
    let task = one_number(norm);
    let layout = layout(&task, ONE_BUCKET);
    trainer_with(devices, &task, options, &layout, |_, worker| Box::new(worker)).unwrap_err().to_string()
}

#[test]
fn what_cannot_hold_a_group_is_refused() {
    let devices = devices(1);
    let small = TrainOptions { micro_batch: MicroBatchSize::Rows(8), ..options(64) };
    assert_eq!(
        refusal(&devices, BatchNorm::default(), &small),
        "train.micro_batch: expected 32 or more, since batch norm takes statistics of 32 samples together, got 8; raise it, \
         or lower the layers' group"
    );
    // 2²⁰ numbers a sample: a group of 32 takes 128 MiB for the input alone, a single sample would fit.
    let wide = Task::regression(
        Sequential::new([1 << 20]).layer(BatchNorm { affine: false, ..BatchNorm::default() }),
        [1 << 20],
    );
    let limited = open(&adapters()[0], Some(64 << 20));
    let error = trainer_with(&[limited], &wide, &options(64), &layout(&wide, ONE_BUCKET), |_, worker| Box::new(worker))
        .unwrap_err()
        .to_string();
    assert!(error.contains("out of memory") && error.contains("batch norm's group of 32 samples"), "{error}");
}

/// Kernels size what they hold by the micro-batch and trust `valid` not to be beyond it: the engine lets nothing else
/// through.
#[test]
fn rows_beyond_the_micro_batch_are_refused() {
    let mut graph = Graph::new();
    let x = graph.input("x", TensorType::f32([3, 2]));
    let norm = op::BatchNorm { group: 2, epsilon: 1e-5, affine: false };
    let y = graph.emit_all(Arc::new(norm), &[x]).unwrap()[0];
    graph.output("y", y);
    let device = devices(1).remove(0);
    let layout = Arc::new(Layout::new(&graph, device.target()).unwrap());
    let plan = Arc::new(Plan::new(&graph, layout.clone(), device.target()).unwrap());
    let storage = Storage::new(&layout, 0, false, false);
    let mut engine = Engine::new(device, &storage, &Duty::Inference).unwrap();
    let mut executable = engine.compile(plan).unwrap();
    let values = [1.0_f32; 8];
    let mut run = |valid: u32, inputs: &[&[u8]]| {
        let batch = MicroBatch { step: Step { valid, first: 1, ..Step::default() }, inputs };
        engine.run(&mut executable, &batch, None)
    };
    let rows = |rows: usize| bytemuck::cast_slice(&values[..2 * rows]);
    for valid in 1..=3 {
        run(valid, &[rows(valid as usize)]).unwrap();
    }
    for valid in [0, 4, u32::MAX] {
        let error = run(valid, &[rows(valid.min(4) as usize)]).unwrap_err().to_string();
        assert!(error.ends_with(&format!("a micro-batch of 3 takes 1 to 3 valid rows, got {valid}")), "{error}");
    }
    let error = run(3, &[]).unwrap_err().to_string();
    assert!(error.ends_with("the plan takes 1 inputs, got 0"), "{error}");
}
