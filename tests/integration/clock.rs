//! The device's own clock: what it says of a step's kernels, and that it is heard where there is one.

use std::sync::Arc;

use everygpu::data::Dataset;
use everygpu::gpu::{Duty, Engine, MicroBatch, TimedBy};
use everygpu::kernel::Step;
use everygpu::nn::{Sequential, initial_values};
use everygpu::optim::{Update, UpdatePlan};
use everygpu::plan::{Buffer, Plan, Storage};
use everygpu::train::{Compression, MicroBatchSize, Shard, ShardReport, StepKey, Task, TrainOptions, Worker};

use crate::training::*;

const ROWS: usize = 300;

fn task() -> Task {
    Task::classification(Sequential::new([7]).linear(16).tanh().linear(5))
}

/// A shard of `rows` rows on `worker`, its gradients handed out or not.
fn shard(worker: &mut dyn Worker, rows: usize, streams: bool) -> ShardReport {
    let data = classes(ROWS, &[7], 5, 1);
    let batch = Arc::new(data.gather(&(0..ROWS).collect::<Vec<_>>()).unwrap());
    let shard = Shard { batch, rows: 0..rows, key: StepKey::default(), weight: 1.0, exact: false };
    let mut sink = |_: usize, _: &[u8]| Ok(());
    worker.gradients(&shard, streams.then_some(&mut sink)).unwrap()
}

#[test]
fn kernels_take_a_part_of_a_steps_time() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for (compression, most, streams) in [
            (Compression::None, 64, false),
            (Compression::None, 8, true),
            (Compression::F16, 64, true),
            (Compression::None, 64, true),
        ] {
            let options = TrainOptions {
                gradient_compression: compression,
                micro_batch: MicroBatchSize::Rows(most),
                ..options(ROWS)
            };
            let mut worker = gpu_worker(&device, 2, &task(), &options, &layout(&task(), 4096)).unwrap();
            worker.lead().unwrap();
            worker.prepare(100).unwrap();
            for step in 0..3 {
                let what = format!("{}, {compression:?}, {most} rows, step {step}", adapter.label());
                let report = shard(&mut worker, 100, streams);
                let plausible = report.kernels.is_some_and(|kernels| kernels > 0.0 && kernels < report.seconds);
                assert_eq!(plausible, device.has_clock(), "{what}: {report:?}");
                // The clock is asked for other things in between.
                worker.update(&Update::default(), None).unwrap();
                worker.fingerprints().unwrap();
            }
        }
    }
}

/// There are queries for 256 passes.
#[test]
fn a_step_of_more_passes_than_the_clock_has_queries_for_is_not_timed() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        let options = TrainOptions { micro_batch: MicroBatchSize::Rows(1), ..options(ROWS) };
        let mut worker = gpu_worker(&device, 1, &task(), &options, &layout(&task(), ONE_BUCKET)).unwrap();
        worker.prepare(ROWS).unwrap();
        for (rows, timed) in [(10, true), (256, true), (257, false), (300, false), (20, true)] {
            let report = shard(&mut worker, rows, false);
            assert_eq!(report.kernels.is_some(), timed && device.has_clock(), "{}, {rows}", adapter.label());
        }
    }
}

/// More dispatches than the clock has queries for, so that it is read in between.
#[test]
fn timing_each_dispatch_by_itself_changes_no_result() {
    let deep = (0..50).fold(Sequential::new([7]), |model, _| model.linear(4).tanh());
    let (task, options) = (Task::classification(deep.linear(5)), options(ROWS));
    let graph = task.training(ROWS).unwrap();
    let data = classes(ROWS, &[7], 5, 1);
    let batch = data.gather(&(0..ROWS).collect::<Vec<_>>()).unwrap();
    let inputs =
        [batch.inputs.row_bytes(0..ROWS), batch.targets.row_bytes(0..ROWS), bytemuck::cast_slice(&batch.weights)];
    let step = Step { valid: ROWS as u32, first: 1, ..Step::default() };
    let batch = MicroBatch { step, inputs: &inputs };
    for adapter in adapters() {
        let device = open(&adapter, None);
        let layout = layout(&task, ONE_BUCKET);
        let plan = Arc::new(Plan::new(&graph, layout.clone(), device.target()).unwrap());
        let update = Arc::new(UpdatePlan::new(&options.update_rule(), &layout, device.target()).unwrap());
        let counts = [plan.dispatches.len(), update.dispatches.len()];
        assert!(counts[0] > 256);
        let storage = Storage::new(&layout, task.statistics().len(), true, false).timed(device.has_clock());
        let mut engine = Engine::new(device.clone(), &storage, &Duty::Lead(update.clone())).unwrap();
        let mut executable = engine.compile(plan).unwrap();
        let weights = layout.pack(0, &initial_values(&graph, 3)).unwrap();
        let change = options.optimizer.step(0.1, ROWS as f64, 1);
        let mut results = Vec::new();
        for by in [None, Some(TimedBy::Host), Some(TimedBy::Device)] {
            let what = format!("{}, {by:?}", adapter.label());
            engine.lead(update.clone()).unwrap();
            engine.write(Buffer::Parameter(0), &weights).unwrap();
            if let Some(by) = by {
                let gradients = engine.time_gradients(&mut executable, &batch, by).unwrap();
                let times = [gradients, engine.time_update(&change, by).unwrap()];
                let is_there = by == TimedBy::Host || device.has_clock();
                for (times, count) in times.into_iter().zip(counts) {
                    assert_eq!(times.as_ref().map(Vec::len), is_there.then_some(count), "{what}");
                    assert!(times.iter().flatten().all(|seconds| *seconds >= 0.0), "{what}: {times:?}");
                }
                if !is_there {
                    continue;
                }
            } else {
                engine.run(&mut executable, &batch, None).unwrap();
                engine.update(&change, None).unwrap();
            }
            results.push((what, [Buffer::Gradient(0), Buffer::Parameter(0)].map(|b| engine.read(b).unwrap())));
        }
        let (_, plain) = &results[0];
        assert_ne!(plain[1], weights);
        assert!(results.iter().all(|(what, result)| result == plain || panic!("{what}")));
    }
}
