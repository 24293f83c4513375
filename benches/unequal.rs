//! How much of unequal devices a training uses: samples/s of each device alone, of all with the even split, and of all
//! with the split by speed, against the sum of the devices' speeds. The devices are simulated: they sleep for as long
//! as they would compute and update, jitter included, and exchange real buckets. So what is measured is the
//! coordinator, in real time.
//!
//! `cargo bench --all-features --bench unequal` measures; with `--test` every setting runs for a few short steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everygpu::kernel::Target;
use everygpu::op::Fill;
use everygpu::optim::{NormOutcome, Update};
use everygpu::plan::{Buffer, Layout};
use everygpu::prelude::*;
use everygpu::rng::Stream;
use everygpu::train::{Shard, ShardReport, Worker, WorkerFactory};

type Sink<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// Samples of a batch, and steps of a training: enough for the split to settle, and as many again.
const BATCHES: [(usize, u64); 2] = [(256, 80), (1024, 40)];
/// A device of speed 1 takes this many seconds for a sample; one of speed s a part of it.
const SAMPLE: f64 = 400e-6;
/// Fixed seconds of a device for its part of a batch, whatever its speed.
const FIXED: f64 = 500e-6;
/// Seconds of an update by a device of speed 1.
const UPDATE: f64 = 3e-3;
/// Largest deviation of a time, as a part of it.
const JITTER: f64 = 0.05;
const SETTINGS: [&[f64]; 4] = [&[1.0, 1.0], &[1.0, 2.0], &[1.0, 6.0], &[1.0, 2.0, 4.0]];

struct Sleeper {
    layout: Arc<Layout>,
    speed: f64,
    jitter: Stream,
    bucket: Vec<u8>,
}

impl Sleeper {
    /// Sleeps until `seconds`, give or take the jitter, after `begin`.
    fn sleep(&mut self, begin: Instant, seconds: f64) {
        let jitter = JITTER * (2.0 * self.jitter.uniform() - 1.0);
        let end = Duration::from_secs_f64(seconds * (1.0 + jitter));
        std::thread::sleep(end.saturating_sub(begin.elapsed()));
    }

    fn hand_out(&self, sink: Option<Sink<'_>>) -> Result<()> {
        let Some(sink) = sink else { return Ok(()) };
        let mut buckets = self.layout.buckets().iter().enumerate();
        buckets.try_for_each(|(index, &bytes)| sink(index, &self.bucket[..bytes as usize]))
    }
}

impl Worker for Sleeper {
    fn label(&self) -> String {
        format!("a device of speed {}", self.speed)
    }

    fn prepare(&mut self, rows: usize) -> Result<usize> {
        Ok(rows)
    }

    fn gradients(&mut self, shard: &Shard, sink: Option<Sink<'_>>) -> Result<ShardReport> {
        let begin = Instant::now();
        self.sleep(begin, FIXED + SAMPLE / self.speed * shard.rows.len() as f64);
        self.hand_out(sink)?;
        Ok(ShardReport { statistics: vec![0.0; 2], seconds: begin.elapsed().as_secs_f64(), kernels: None })
    }

    fn evaluate(&mut self, _: &Shard) -> Result<ShardReport> {
        Ok(ShardReport::default())
    }

    fn lead(&mut self) -> Result<()> {
        Ok(())
    }

    fn follow(&mut self) {}

    fn update(&mut self, _: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        self.sleep(Instant::now(), UPDATE / self.speed);
        self.hand_out(sink)?;
        Ok(NormOutcome { applied: 1, ..NormOutcome::default() })
    }

    fn write(&mut self, _: Buffer, values: &[f32]) -> Result<()> {
        self.bucket[..4 * values.len()].copy_from_slice(bytemuck::cast_slice(values));
        Ok(())
    }

    fn fingerprints(&mut self) -> Result<Vec<u64>> {
        Ok(vec![0; self.layout.buckets().len()])
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<f32>> {
        match buffer {
            Buffer::Parameter(b) | Buffer::State { bucket: b, .. } => {
                Ok(vec![0.0; self.layout.buckets()[b] as usize / 4])
            }
            other => Err(Error::Training(format!("{other} is not read in this benchmark"))),
        }
    }
}

/// 301,066 parameters: 1.2 MB to exchange.
fn task() -> Task {
    Task::classification(Sequential::new([64]).linear(512).relu().linear(512).relu().linear(10))
}

fn batch(rows: usize) -> Arc<Batch> {
    let mut stream = Stream::new(1, "bench");
    Arc::new(Batch {
        inputs: Fill::Normal.tensor(&TensorType::f32([rows, 64]), &mut stream),
        targets: Fill::Below(10).tensor(&TensorType::u32([rows]), &mut stream),
        weights: vec![1.0; rows],
    })
}

/// Samples/s of the median step of the second half of `steps`, and the split then.
fn measure(speeds: &[f64], split: Split, (rows, steps): (usize, u64)) -> Result<(f64, Vec<usize>)> {
    let task = task();
    let layout = Arc::new(Layout::new(&task.training(1)?, &Target::default())?);
    let sleeper = |(index, &speed): (usize, &f64)| {
        let layout = layout.clone();
        WorkerFactory::new(move || {
            let bucket = vec![0; layout.buckets().iter().copied().max().unwrap_or(0) as usize];
            let jitter = Stream::new(index as u64, "jitter");
            Ok(Box::new(Sleeper { layout: layout.clone(), speed, jitter, bucket }))
        })
    };
    let workers = speeds.iter().enumerate().map(sleeper).collect();
    let options = TrainOptions { batch: rows, split, ..TrainOptions::default() };
    let mut trainer = Trainer::with_workers(task, options, workers, layout.clone())?;
    let batch = batch(rows);
    let mut seconds = Vec::new();
    let mut shards = Vec::new();
    for step in 0..steps {
        let record = trainer.step_on(&batch, steps)?;
        if step >= steps / 2 {
            seconds.push(record.seconds);
        }
        shards = record.shards;
    }
    seconds.sort_by(f64::total_cmp);
    Ok((rows as f64 / seconds[seconds.len() / 2], shards))
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|a| a == "--test");
    println!(
        "| batch | speeds | best alone | sum of speeds | even split | of the sum | split by speed | of the sum | rows |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
    let sizes = if quick { &[(32, 4)][..] } else { &BATCHES };
    for &size in sizes {
        for speeds in SETTINGS {
            report(speeds, size)?;
        }
    }
    Ok(())
}

/// One line of the table.
fn report(speeds: &[f64], size: (usize, u64)) -> Result<()> {
    let alone = |&speed: &f64| Ok(measure(&[speed], Split::Even, size)?.0);
    let alone: Vec<f64> = speeds.iter().map(alone).collect::<Result<_>>()?;
    let (best, sum) = (alone.iter().copied().fold(0.0, f64::max), alone.iter().sum::<f64>());
    let (even, _) = measure(speeds, Split::Even, size)?;
    let (by_speed, rows) = measure(speeds, Split::Speed, size)?;
    let ratio = speeds.iter().map(f64::to_string).collect::<Vec<_>>().join(":");
    let rows = rows.iter().map(usize::to_string).collect::<Vec<_>>().join(" + ");
    let part = |speed: f64| 100.0 * speed / sum;
    println!(
        "| {} | {ratio} | {best:.0} | {sum:.0} | {even:.0} | {:.0}% | {by_speed:.0} | {:.0}% | {rows} |",
        size.0,
        part(even),
        part(by_speed)
    );
    Ok(())
}
