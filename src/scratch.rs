//! A device of its own for measurements: an engine that starts from given weights, and is put back to them after every
//! use. Nothing that trains sees it.

use std::sync::Arc;
use std::time::Instant;

use super::measured::Measurement;
use super::sweep::Bench;
use crate::data::{Batch, Dataset, Sampler};
use crate::error::Result;
use crate::gpu::{Adapter, Device, Duty, Engine, Executable, MicroBatch};
use crate::kernel::Step;
use crate::optim::{At, UpdatePlan};
use crate::plan::{Buffer, Layout, Plan, Storage};
use crate::rng::words;
use crate::train::Task;
use crate::train::TrainOptions;

/// What is measured, wherever it is measured.
#[derive(Clone)]
pub(super) struct Subject {
    pub task: Task,
    pub options: TrainOptions,
    pub data: Arc<dyn Dataset>,
    pub layout: Arc<Layout>,
    /// Samples that a micro-batch must not cut.
    pub group: usize,
    /// The weights, by bucket.
    pub weights: Arc<Vec<Vec<u8>>>,
    /// Whether the run has several devices, so that gradients and weights pass through the host.
    pub exchanges: bool,
    pub memory_limit: Option<u64>,
    /// Seconds that the timed steps of a size may take.
    pub seconds: f64,
}

impl Subject {
    /// The model's buffers on `device`: those that a training has.
    fn storage(&self, device: &Device) -> Storage {
        Storage::new(&self.layout, self.task.statistics().len(), true, self.exchanges)
            .compressed(self.options.gradient_compression)
            .timed(device.has_clock())
    }
}

/// Fewest steps that are timed, time permitting.
const FEWEST: usize = 5;
/// Most steps that are timed.
const MOST: usize = 200;

/// A device of its own for measurements: an engine that starts from given weights, and is put back to them after every
/// use.
pub struct Scratch {
    engine: Engine,
    subject: Subject,
    update: Arc<UpdatePlan>,
    order: Sampler,
}

impl Scratch {
    /// Opens `adapter` and puts the weights on it. It leads: every device of a run must be able to.
    pub(super) fn open(adapter: &Adapter, subject: Subject) -> Result<Self> {
        subject.layout.check_limits(&adapter.target())?;
        let device = Device::open(adapter, subject.memory_limit)?;
        let options = &subject.options;
        let update = Arc::new(UpdatePlan::new(&options.update_rule(), &subject.layout, device.target())?);
        let storage = subject.storage(&device);
        let engine = Engine::new(device, &storage, &Duty::Lead(update.clone()))?;
        let order = Sampler::new(subject.data.len(), 1, options.seed, true, false)?;
        let mut scratch = Self { engine, subject, update, order };
        scratch.reset()?;
        Ok(scratch)
    }

    /// Puts weights and moments back to what they were at the start.
    fn reset(&mut self) -> Result<()> {
        for (bucket, bytes) in self.subject.weights.iter().enumerate() {
            self.engine.write(Buffer::Parameter(bucket), bytes)?;
            let zeros = vec![0; bytes.len()];
            for moment in 0..self.update.moments.len() {
                self.engine.write(Buffer::State { moment, bucket }, &zeros)?;
            }
        }
        Ok(())
    }

    /// The bytes of all weights and moments, as they are on the device.
    ///
    /// # Errors
    /// When the device fails.
    pub fn state(&mut self) -> Result<Vec<Vec<u8>>> {
        let buckets = 0..self.subject.layout.buckets().len();
        let moments = 0..self.update.moments.len();
        let state =
            buckets.clone().flat_map(|bucket| moments.clone().map(move |moment| Buffer::State { moment, bucket }));
        let all: Vec<Buffer> = buckets.clone().map(Buffer::Parameter).chain(state).collect();
        all.into_iter().map(|buffer| self.engine.read(buffer)).collect()
    }

    pub(super) fn group(&self) -> usize {
        self.subject.group
    }

    fn plan(&self, rows: usize) -> Result<Plan> {
        let graph = self.subject.task.training(rows)?;
        Plan::new(&graph, self.subject.layout.clone(), self.engine.device().target())
    }

    pub(super) fn compile(&self, rows: usize) -> Result<Executable> {
        self.engine.compile(Arc::new(self.plan(rows)?))
    }

    /// The samples at these places of the run's first epoch.
    pub(super) fn gather(&mut self, places: std::ops::Range<usize>) -> Result<Batch> {
        let indices: Vec<usize> = places.flat_map(|place| self.order.batch_indices(0, place)).collect();
        self.subject.data.gather(&indices)
    }

    /// Forward and backward over a whole micro-batch, which stands at `first_row` of its batch. Gradients start anew.
    pub(super) fn run(&mut self, executable: &mut Executable, batch: &Batch, first_row: usize) -> Result<()> {
        let rows = batch.len();
        let step = Step {
            seed: words(self.subject.options.seed),
            first_row: first_row as u32,
            valid: rows as u32,
            first: 1,
            ..Step::default()
        };
        let inputs =
            [batch.inputs.row_bytes(0..rows), batch.targets.row_bytes(0..rows), bytemuck::cast_slice(&batch.weights)];
        self.engine.run(executable, &MicroBatch { step, inputs: &inputs }, None)
    }

    /// How much each of the batch's samples counts.
    pub(super) fn weights(&self, batch: &Batch) -> Vec<f64> {
        self.subject.task.weights(batch)
    }

    /// The gradient that the last run left, as one vector over all buckets of trained parameters (their padding is 0).
    pub(super) fn gradient(&mut self) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for bucket in 0..self.subject.layout.trained_buckets() {
            values.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&self.engine.read(Buffer::Gradient(bucket))?));
        }
        Ok(values)
    }

    /// Steps until the time is over; the median one's seconds, and how many there were.
    fn time(&mut self, executable: &mut Executable, batch: &Batch) -> Result<(f64, usize)> {
        let (options, allowed) = (&self.subject.options, self.subject.seconds);
        let rate = options.schedule.rate(&At::default());
        let update = options.optimizer.step(rate, self.subject.task.weight_sum(batch).max(f64::MIN_POSITIVE), 1);
        let mut step = || -> Result<f64> {
            let begin = Instant::now();
            self.run(executable, batch, 0)?;
            self.engine.update(&update, None)?;
            Ok(begin.elapsed().as_secs_f64())
        };
        step()?; // drivers compile for real at the first use
        let begin = Instant::now();
        let mut seconds = Vec::new();
        let enough = |steps: usize| {
            let over = begin.elapsed().as_secs_f64() / allowed;
            steps >= MOST || (steps >= FEWEST && over >= 0.5) || (steps >= 1 && over >= 1.0)
        };
        while !enough(seconds.len()) {
            seconds.push(step()?);
        }
        let steps = seconds.len();
        seconds.sort_by(f64::total_cmp);
        Ok((seconds[steps / 2], steps))
    }
}

impl Bench for Scratch {
    fn predict(&mut self, rows: usize) -> Result<u64> {
        let storage = self.subject.storage(self.engine.device()).footprint();
        let update = self.update.storage(&self.subject.layout).footprint();
        Ok(storage.bytes() + update.bytes() + self.plan(rows)?.footprint().bytes())
    }

    fn measure(&mut self, rows: usize) -> Result<Measurement> {
        let mut executable = self.compile(rows)?;
        let allocated_bytes = self.engine.device().bytes_in_use();
        let batch = self.gather(0..rows)?;
        let timed = self.time(&mut executable, &batch);
        self.reset()?;
        let (seconds_per_step, steps) = timed?;
        let samples_per_second = rows as f64 / seconds_per_step.max(f64::MIN_POSITIVE);
        Ok(Measurement { allocated_bytes, seconds_per_step, samples_per_second, steps })
    }
}
