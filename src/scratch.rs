//! A device of its own for measurements: an engine that starts from given weights, and is put back to them after every
//! use. Nothing that trains sees it.

use std::sync::Arc;
use std::time::Instant;

use crate::checkpoint::Snapshot;
use crate::data::{Batch, Dataset, Sampler};
use crate::error::Result;
use crate::gpu::{Adapter, Device, Duty, Engine, Executable, MicroBatch, TimedBy};
use crate::kernel::{Step, Target};
use crate::nn;
use crate::optim::{At, Update, UpdatePlan};
use crate::plan::{Buffer, Dispatch, Layout, Plan, Storage};
use crate::rng::words;
use crate::train::{Task, TrainOptions, values};

/// What is measured, wherever it is measured.
#[derive(Clone)]
pub(crate) struct Subject {
    pub task: Task,
    pub options: TrainOptions,
    pub data: Arc<dyn Dataset>,
    /// A checkpoint whose weights are taken instead of initial ones.
    pub snapshot: Option<Snapshot>,
    /// Whether the run has several devices, so that gradients and weights pass through the host.
    pub exchanges: bool,
    pub memory_limit: Option<u64>,
    /// Seconds that the repetitions of one measurement may take.
    pub seconds: f64,
}

/// What all measurements of a subject have in common.
#[derive(Clone)]
pub(crate) struct Start {
    layout: Arc<Layout>,
    /// Samples that a micro-batch must not cut.
    pub group: usize,
    /// The weights, by bucket.
    weights: Arc<Vec<Vec<u8>>>,
}

impl Subject {
    /// Where measurements on adapters with these targets start.
    pub(crate) fn start(&self, targets: &[Target]) -> Result<Start> {
        self.task.check(self.data.as_ref())?;
        let graph = self.task.training(1)?;
        let layout = Arc::new(Layout::shared(&graph, targets)?);
        let weights = match &self.snapshot {
            Some(snapshot) => values(&snapshot.weights, "")?,
            None => nn::initial_values(&graph, self.options.seed),
        };
        let packed = (0..layout.buckets().len()).map(|b| layout.pack(b, &weights)).collect::<Result<Vec<_>>>()?;
        Ok(Start { group: graph.group(), layout, weights: Arc::new(packed) })
    }

    /// The model's buffers on `device`: those that a training has.
    fn storage(&self, layout: &Arc<Layout>, device: &Device) -> Storage {
        Storage::new(layout, self.task.statistics().len(), true, self.exchanges)
            .compressed(self.options.gradient_compression)
            .timed(device.has_clock())
    }
}

/// Fewest repetitions that are timed, time permitting.
const FEWEST: usize = 5;
/// Most repetitions that are timed.
const MOST: usize = 200;

/// A device of its own for measurements: an engine that starts from given weights, and is put back to them after every
/// use.
pub struct Scratch {
    engine: Engine,
    subject: Subject,
    start: Start,
    update: Arc<UpdatePlan>,
    order: Sampler,
}

impl Scratch {
    /// Opens `adapter` and puts the weights on it. It leads: every device of a run must be able to.
    pub(crate) fn open(adapter: &Adapter, subject: Subject, start: Start) -> Result<Self> {
        start.layout.check_limits(&adapter.target())?;
        let device = Device::open(adapter, subject.memory_limit)?;
        let options = &subject.options;
        let update = Arc::new(UpdatePlan::new(&options.update_rule(), &start.layout, device.target())?);
        let storage = subject.storage(&start.layout, &device);
        let engine = Engine::new(device, &storage, &Duty::Lead(update.clone()))?;
        let order = Sampler::new(subject.data.len(), 1, options.seed, true, false)?;
        let mut scratch = Self { engine, subject, start, update, order };
        scratch.reset()?;
        Ok(scratch)
    }

    /// Puts weights and moments back to what they were at the start.
    pub(crate) fn reset(&mut self) -> Result<()> {
        for (bucket, bytes) in self.start.weights.iter().enumerate() {
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
        let buckets = 0..self.start.layout.buckets().len();
        let moments = 0..self.update.moments.len();
        let state =
            buckets.clone().flat_map(|bucket| moments.clone().map(move |moment| Buffer::State { moment, bucket }));
        let all: Vec<Buffer> = buckets.clone().map(Buffer::Parameter).chain(state).collect();
        all.into_iter().map(|buffer| self.engine.read(buffer)).collect()
    }

    /// Samples that a micro-batch must not cut.
    pub(crate) fn group(&self) -> usize {
        self.start.group
    }

    fn plan(&self, rows: usize) -> Result<Plan> {
        let graph = self.subject.task.training(rows)?;
        Plan::new(&graph, self.start.layout.clone(), self.engine.device().target())
    }

    /// A micro-batch of `rows` rows, made ready.
    pub(crate) fn compile(&self, rows: usize) -> Result<Executable> {
        self.engine.compile(Arc::new(self.plan(rows)?))
    }

    /// The samples at these places of the run's first epoch.
    pub(crate) fn gather(&mut self, places: std::ops::Range<usize>) -> Result<Batch> {
        let indices: Vec<usize> = places.flat_map(|place| self.order.batch_indices(0, place)).collect();
        self.subject.data.gather(&indices)
    }

    /// Forward and backward over a whole micro-batch, which stands at `first_row` of its batch. Gradients start anew.
    pub(crate) fn run(&mut self, executable: &mut Executable, batch: &Batch, first_row: usize) -> Result<()> {
        let (step, inputs) = self.micro_batch(batch, first_row);
        self.engine.run(executable, &MicroBatch { step, inputs: &inputs }, None)
    }

    fn micro_batch<'a>(&self, batch: &'a Batch, first_row: usize) -> (Step, [&'a [u8]; 3]) {
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
        (step, inputs)
    }

    /// How much each of the batch's samples counts.
    pub(crate) fn weights(&self, batch: &Batch) -> Vec<f64> {
        self.subject.task.weights(batch)
    }

    /// The gradient that the last run left, as one vector over all buckets of trained parameters (their padding is 0).
    pub(crate) fn gradient(&mut self) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for bucket in 0..self.start.layout.trained_buckets() {
            values.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&self.engine.read(Buffer::Gradient(bucket))?));
        }
        Ok(values)
    }

    /// Forward, backward and update of a whole micro-batch; the seconds that this took.
    pub(crate) fn step(&mut self, executable: &mut Executable, batch: &Batch) -> Result<f64> {
        let update = self.update_for(batch);
        let begin = Instant::now();
        self.run(executable, batch, 0)?;
        self.engine.update(&update, None)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// The same, each dispatch timed `by` a clock: the seconds of the gradients' and of the update's. `None` where that
    /// clock is not there or made no sense.
    pub(crate) fn dispatches(
        &mut self,
        executable: &mut Executable,
        batch: &Batch,
        by: TimedBy,
    ) -> Result<Option<[Vec<f64>; 2]>> {
        let update = self.update_for(batch);
        let (step, inputs) = self.micro_batch(batch, 0);
        let micro_batch = MicroBatch { step, inputs: &inputs };
        let Some(gradients) = self.engine.time_gradients(executable, &micro_batch, by)? else { return Ok(None) };
        Ok(self.engine.time_update(&update, by)?.map(|update| [gradients, update]))
    }

    fn update_for(&self, batch: &Batch) -> Update {
        let options = &self.subject.options;
        let rate = options.schedule.rate(&At::default());
        options.optimizer.step(rate, self.subject.task.weight_sum(batch).max(f64::MIN_POSITIVE), 1)
    }

    /// Bytes that the device will have allocated when micro-batches of `rows` rows run on it.
    pub(crate) fn predicted_bytes(&self, rows: usize) -> Result<u64> {
        let storage = self.subject.storage(&self.start.layout, self.engine.device()).footprint();
        let update = self.update.storage(&self.start.layout).footprint();
        Ok(storage.bytes() + update.bytes() + self.plan(rows)?.footprint().bytes())
    }

    /// Seconds that the repetitions of one measurement may take.
    pub(crate) fn seconds(&self) -> f64 {
        self.subject.seconds
    }

    /// Bytes that it has allocated.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.engine.device().bytes_in_use()
    }

    /// What an update runs.
    pub(crate) fn update(&self) -> &[Dispatch] {
        &self.update.dispatches
    }
}

/// Does `once` until the time is over: what each time gave, in order.
pub(crate) fn repeat<T>(allowed_seconds: f64, mut once: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    let begin = Instant::now();
    let mut found = Vec::new();
    let enough = |times: usize| {
        let over = begin.elapsed().as_secs_f64() / allowed_seconds;
        times >= MOST || (times >= FEWEST && over >= 0.5) || (times >= 1 && over >= 1.0)
    };
    while !enough(found.len()) {
        found.push(once()?);
    }
    Ok(found)
}

/// The median; of an even number of values, the upper one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
