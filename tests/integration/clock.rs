//! The device's own clock: what it says of a step's kernels, and that it is heard where there is one.

use std::sync::Arc;

use everygpu::data::Dataset;
use everygpu::nn::Sequential;
use everygpu::optim::Update;
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
