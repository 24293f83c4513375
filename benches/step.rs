//! Throughput in samples/s of a whole training step: upload of the batch, forward, backward, update. Weights stay on
//! the device, as they do in training on one. The data is random; its content does not change the time.
//!
//! `cargo bench --all-features -- 'digits mlp/lavapipe'` runs what matches; with `--test` in the place of a name, every
//! step runs once.

use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use everygpu::op::Fill;
use everygpu::prelude::*;
use everygpu::rng::Stream;

/// The network of the embedded digits: 8×8 pixels.
fn digits_mlp() -> Sequential {
    Sequential::new([1, 8, 8]).flatten().linear(64).relu().linear(10)
}

/// The network of `examples/mnist.toml`: 28×28 pixels.
fn mnist_cnn() -> Sequential {
    let convolutions = Sequential::new([1, 28, 28]).conv2d(8, 5, 2).relu().max_pool2d(2).conv2d(16, 5, 0).relu();
    convolutions.max_pool2d(2).flatten().linear(64).relu().linear(10)
}

/// A trainer and a batch of `rows` samples for it.
fn training(model: Sequential, adapter: &Adapter, rows: usize, replicas: usize) -> Result<(Trainer, Arc<Batch>)> {
    let mut stream = Stream::new(1, "bench");
    let input = TensorType::f32(model.input().shape.batched(rows));
    let batch = Batch {
        inputs: Fill::Normal.tensor(&input, &mut stream),
        targets: Fill::Below(10).tensor(&TensorType::u32([rows]), &mut stream),
        weights: vec![1.0; rows],
    };
    let options = TrainOptions {
        batch: rows,
        micro_batch: MicroBatchSize::Rows(rows),
        split: Split::Even,
        // Small steps: random labels cannot be learnt, and the weights must stay finite.
        schedule: Schedule::constant(1e-6),
        ..TrainOptions::default()
    };
    let task = Task::classification(model);
    let trainer = Trainer::builder(task, options).adapters(std::slice::from_ref(adapter)).replicas(replicas).start()?;
    Ok((trainer, Arc::new(batch)))
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    model: fn() -> Sequential,
    (adapter, rows, replicas): (&Adapter, usize, usize),
) {
    group.throughput(Throughput::Elements(rows as u64));
    // Made when the benchmark is the first time not filtered out.
    let mut made = None;
    group.bench_function(id, |bencher| {
        let (trainer, batch) =
            made.get_or_insert_with(|| training(model(), adapter, rows, replicas).expect("the model fits the adapter"));
        bencher.iter(|| trainer.step_on(batch, 1).expect("the step works"));
    });
}

fn tuned<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group
}

fn adapters() -> Adapters {
    Adapters::discover().expect("the benchmarks need an adapter: ./test.sh installs software ones")
}

/// By micro-batch size and adapter.
fn steps(criterion: &mut Criterion) {
    for (name, model) in [("digits mlp", digits_mlp as fn() -> Sequential), ("mnist cnn", mnist_cnn)] {
        let mut group = tuned(criterion, name);
        for adapter in adapters().iter() {
            for rows in [16, 64, 256] {
                measure(&mut group, BenchmarkId::new(adapter.label(), rows), model, (adapter, rows, 1));
            }
        }
        group.finish();
    }
}

/// What the way over the host costs: the same batch on one and on two logical devices of an adapter.
fn replicas(criterion: &mut Criterion) {
    let mut group = tuned(criterion, "replicas, mnist cnn, batch 64");
    for adapter in adapters().iter() {
        for replicas in [1, 2] {
            measure(&mut group, BenchmarkId::new(adapter.label(), replicas), mnist_cnn, (adapter, 64, replicas));
        }
    }
    group.finish();
}

criterion_group!(benches, steps, replicas);
criterion_main!(benches);
