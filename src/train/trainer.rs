//! The training loop: epochs and steps over a data set, with the position in them, so that a run can stop anywhere and go
//! on from a snapshot as if it had not.

use std::sync::Arc;
use std::time::Instant;

use super::coordinator::{Coordinator, StepEnd, StepReport};
use super::gpu_worker::GpuWorker;
use super::options::TrainOptions;
use super::record::{EpochRecord, Flow, Observer, Progress, StepRecord, Tally};
use super::replica::WorkerFactory;
use super::self_test::{Rejected, usable};
use super::split::Splitter;
use super::state::Position;
use super::task::Task;
use super::worker::StepKey;
use crate::checkpoint::Snapshot;
use crate::data::{Batch, Dataset, Loader, Sampler};
use crate::error::{Error, Result};
use crate::gpu::{Adapter, Device};
use crate::nn;
use crate::op::Target;
use crate::optim::UpdatePlan;
use crate::plan::{Buffer, Layout};
use crate::trace;

const NO_SNAPSHOT: &str = "the device with the optimizer's state was lost, and there is no snapshot to go back to";

/// Batches that are gathered ahead.
const PREFETCH: usize = 2;

/// What a finished training says.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// The last epoch that was finished, if any was.
    pub last: Option<EpochRecord>,
    /// Optimizer steps taken, earlier runs' included.
    pub steps: u64,
    /// Whether an observer stopped it.
    pub stopped: bool,
}

/// Trains a model on several devices. See the module's documentation.
#[derive(Debug)]
pub struct Trainer {
    pub(super) task: Task,
    pub(super) options: TrainOptions,
    pub(super) coordinator: Coordinator,
    pub(super) position: Position,
    /// What a lost lead is recovered from.
    pub(super) fallback: Option<Snapshot>,
    rejected: Vec<Rejected>,
}

impl Trainer {
    /// A trainer on `replicas` logical devices of each of `adapters`, with freshly initialised weights. `memory_limit`, in
    /// bytes, caps each device. An adapter that fails the self-test is left out, as [`Trainer::rejected`] tells.
    ///
    /// # Errors
    /// When a setting is out of range, the model cannot work, no adapter passes the self-test, or no device can run it.
    pub fn new(
        task: Task,
        options: TrainOptions,
        adapters: &[Adapter],
        replicas: usize,
        memory_limit: Option<u64>,
    ) -> Result<Self> {
        if replicas == 0 {
            return Err(Error::invalid("devices.replicas", "expected 1 or more, got 0"));
        }
        let graph = task.training(1)?;
        let (adapters, rejected) = usable(adapters.to_vec())?;
        let targets: Vec<Target> = adapters.iter().map(Adapter::target).collect();
        let layout = Arc::new(Layout::new(&graph, &smallest(&targets)?)?);
        let count = adapters.len() * replicas;
        let mut factories: Vec<WorkerFactory> = Vec::new();
        for adapter in adapters.iter().flat_map(|a| std::iter::repeat_n(a, replicas)) {
            let update = UpdatePlan::new(&options.optimizer, &layout, options.clip_norm, &adapter.target())?;
            let (adapter, task, layout, update) = (adapter.clone(), task.clone(), layout.clone(), Arc::new(update));
            let micro_batch = options.micro_batch;
            factories.push(WorkerFactory::new(move || {
                let device = Device::open(&adapter, memory_limit)?;
                let (task, layout, update) = (task.clone(), layout.clone(), update.clone());
                Ok(Box::new(GpuWorker::new(device, task, layout, update, micro_batch, count > 1)?))
            }));
        }
        Ok(Self { rejected, ..Self::with_workers(task, options, factories, layout)? })
    }

    /// A trainer over workers of any kind, each made on its own thread. All hold the parameters as `layout` says.
    ///
    /// # Errors
    /// When a setting is out of range, or no worker starts.
    pub fn with_workers(
        task: Task,
        options: TrainOptions,
        workers: Vec<WorkerFactory>,
        layout: Arc<Layout>,
    ) -> Result<Self> {
        options.validate()?;
        let splitter = Splitter::new(&options.split, options.window(), workers.len(), options.deterministic)?;
        let initial = nn::initial_values(&task.training(1)?, options.seed);
        let coordinator = Coordinator::new(workers, layout, splitter, options.endurance)?;
        let mut trainer =
            Self { task, options, coordinator, position: Position::default(), fallback: None, rejected: vec![] };
        trainer.set_weights(&initial)?;
        Ok(trainer)
    }

    /// The devices and how the work is divided.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Where the run stands.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The adapters that were left out because they compute wrongly, and what the self-test found.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The settings.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// Trains to the end of the last epoch, from where the trainer stands.
    ///
    /// # Errors
    /// When no device is left, too many gradients in a row were not finite, the data cannot be read, or the observer fails.
    pub fn fit(
        &mut self,
        train: &Arc<dyn Dataset>,
        validation: Option<&Arc<dyn Dataset>>,
        observer: &mut dyn Observer,
    ) -> Result<FitReport> {
        self.can_train_on(train.as_ref())?;
        let sampler = self.sampler(train.as_ref())?;
        let mut last = None;
        loop {
            let outcome = self.fit_from_here(train, validation, &sampler, observer, &mut last);
            self.announce_losses(observer)?;
            match outcome? {
                Some(stopped) => return Ok(FitReport { last, steps: self.position.step, stopped }),
                None => self.roll_back(observer)?,
            }
        }
    }

    /// Checks, before anything is done, that this trainer can train on `train`.
    ///
    /// # Errors
    /// When its samples are not what the model takes, or `drop_last` would leave none.
    pub fn can_train_on(&self, train: &dyn Dataset) -> Result<()> {
        self.check_data(train)?;
        self.sampler(train).map(drop)
    }

    fn sampler(&self, train: &dyn Dataset) -> Result<Sampler> {
        Sampler::new(train.len(), self.options.window(), self.options.seed, true, self.options.drop_last)
    }

    /// Trains until the end or a stop (`Some`), or until the lead is lost (`None`).
    fn fit_from_here(
        &mut self,
        train: &Arc<dyn Dataset>,
        validation: Option<&Arc<dyn Dataset>>,
        sampler: &Sampler,
        observer: &mut dyn Observer,
        last: &mut Option<EpochRecord>,
    ) -> Result<Option<bool>> {
        let steps_per_epoch = sampler.steps_per_epoch() as u64;
        // Counted from the position in epochs: where a run goes on with another number of samples, its steps so far are not
        // those of its epochs now.
        let done_in_epoch = self.position.step_in_epoch.min(steps_per_epoch);
        let epochs = self.options.epochs.saturating_sub(self.position.epoch);
        let remaining = steps_per_epoch.saturating_mul(epochs).saturating_sub(done_in_epoch);
        let total = self.position.step.saturating_add(remaining);
        if self.fallback.is_none() && self.coordinator.alive().len() > 1 {
            match self.snapshot() {
                Ok(snapshot) => self.fallback = Some(snapshot),
                Err(error) => return if self.coordinator.state_lost()? { Ok(None) } else { Err(error) },
            }
        }
        let indices = sampler.clone().batches_from(self.position.epoch, done_in_epoch as usize);
        let mut loader = Loader::start(train.clone(), indices.take(remaining as usize), PREFETCH)?;
        let mut flow = Flow::Continue;
        while self.position.epoch < self.options.epochs {
            if self.position.step_in_epoch < steps_per_epoch {
                let waiting = trace::span(|| "host".to_owned(), "wait for the loader");
                let batch = loader.next().ok_or_else(|| Error::Training("the loader ended early".into()))??;
                drop(waiting);
                let batch = Arc::new(batch);
                let Some(record) = self.step(&batch, steps_per_epoch, total)? else { return Ok(None) };
                let looked_after = self.look_after(&batch);
                if self.coordinator.state_lost()? {
                    return Ok(None);
                }
                looked_after?;
                self.announce_losses(observer)?;
                let Some(said) = self.tell(observer, &Progress::Step(&record))? else { return Ok(None) };
                flow = said;
                self.check_finite(&record)?;
            }
            // A run that goes on from a snapshot of an epoch's last step has only this to do for it.
            if self.position.step_in_epoch >= steps_per_epoch {
                let epoch = self.finish_epoch(validation)?;
                if self.coordinator.state_lost()? {
                    return Ok(None);
                }
                self.announce_losses(observer)?;
                match self.tell(observer, &Progress::Epoch(&epoch))? {
                    Some(Flow::Continue) => {}
                    Some(Flow::Stop) => flow = Flow::Stop,
                    None => return Ok(None),
                }
                *last = Some(epoch);
            }
            if flow == Flow::Stop {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// Tells the observer; `None` when it lost the lead over it (in reading a snapshot, say), which is not its fault.
    fn tell(&mut self, observer: &mut dyn Observer, progress: &Progress<'_>) -> Result<Option<Flow>> {
        match observer.observe(progress, self) {
            Ok(Flow::Stop) => Ok(Some(Flow::Stop)),
            _ if self.coordinator.state_lost()? => Ok(None),
            said => said.map(Some),
        }
    }

    /// One optimizer step on a batch of the caller's, for loops other than [`Trainer::fit`]; `total` is the number of steps
    /// that the schedule is laid out for. Steps count as of one epoch that does not end.
    ///
    /// # Errors
    /// As [`Trainer::fit`]. When the device with the optimizer's state is lost, and until [`Trainer::restore`] has gone back
    /// to a snapshot.
    pub fn step_on(&mut self, batch: &Arc<Batch>, total: u64) -> Result<StepRecord> {
        let lost = || Error::Training("the device with the optimizer's state was lost; restore a snapshot".into());
        let record = self.step(batch, total, total)?.ok_or_else(lost)?;
        self.check_finite(&record)?;
        Ok(record)
    }

    /// Whether to go on after the step of `record`, which the observer has seen.
    fn check_finite(&self, record: &StepRecord) -> Result<()> {
        let skipped = self.position.skipped_in_a_row;
        if record.applied || skipped < self.options.nonfinite_limit {
            return Ok(());
        }
        Err(Error::Training(format!(
            "the gradient was not finite in {skipped} updates in a row, up to step {}; the weights are those before them. Try \
             a smaller learning rate, or train.clip_norm",
            record.step
        )))
    }

    /// One optimizer step; `None` when the lead was lost.
    fn step(&mut self, batch: &Arc<Batch>, steps_per_epoch: u64, total: u64) -> Result<Option<StepRecord>> {
        let begin = Instant::now();
        let at = self.position.clone();
        let learning_rate = self.options.schedule.rate(at.step, total);
        let weight = self.task.weight_sum(batch);
        let samples = batch.len();
        let report = if weight > 0.0 {
            let update = self.options.optimizer.step(learning_rate, weight, at.applied + 1);
            let key = StepKey { seed: self.options.seed, step: at.step };
            self.coordinator.set_horizon(total.saturating_sub(at.step + 1));
            match self.coordinator.step(batch, key, &update)? {
                StepEnd::Done(report) => report,
                StepEnd::LeadLost => return Ok(None),
            }
        } else {
            // Samples of which none counts have no mean gradient.
            StepReport { shards: vec![0; self.coordinator.alive().len()], ..StepReport::default() }
        };
        let applied = report.outcome.applied != 0;
        let mut tally = Tally::default();
        tally.add(&report.statistics, weight);
        self.position.advance(applied, &tally, samples, begin.elapsed().as_secs_f64());
        let record = StepRecord {
            step: at.step,
            epoch: at.epoch,
            step_in_epoch: at.step_in_epoch,
            steps_per_epoch,
            samples,
            loss: tally.loss(),
            accuracy: tally.accuracy(),
            learning_rate,
            gradient_norm: f64::from(report.outcome.norm),
            applied,
            shards: report.shards,
            busy: report.busy,
            seconds: begin.elapsed().as_secs_f64(),
            phases: report.phases,
            resplit: report.resplit,
        };
        Ok(Some(record))
    }

    /// What several devices need now and then: comparisons of their weights and results, a snapshot to go back to.
    fn look_after(&mut self, batch: &Arc<Batch>) -> Result<()> {
        let due = |every: u64| every > 0 && self.position.step.is_multiple_of(every);
        let (verify, snapshot) = (due(self.options.verify_weights_every), due(self.options.snapshot_every));
        if self.coordinator.alive().len() < 2 {
            return Ok(());
        }
        if verify {
            self.coordinator.verify_weights()?;
        }
        if due(self.options.cross_check_every) {
            let key = StepKey { seed: self.options.seed, step: self.position.step };
            self.coordinator.cross_check(batch, key)?;
        }
        if snapshot {
            self.fallback = Some(self.snapshot()?);
        }
        Ok(())
    }

    fn finish_epoch(&mut self, validation: Option<&Arc<dyn Dataset>>) -> Result<EpochRecord> {
        let validation = validation.map(|data| self.evaluate(data)).transpose()?;
        let done = self.position.finish_epoch();
        Ok(EpochRecord {
            epoch: done.epoch,
            epochs: self.options.epochs,
            steps: self.position.step,
            samples_per_second: done.samples as f64 / done.seconds.max(f64::MIN_POSITIVE),
            seconds: done.seconds,
            train: done.tally,
            validation,
        })
    }

    fn announce_losses(&mut self, observer: &mut dyn Observer) -> Result<()> {
        for loss in self.coordinator.take_losses() {
            observer.observe(&Progress::Lost(&loss), self)?;
        }
        for label in self.coordinator.take_joined() {
            observer.observe(&Progress::Rejoined(&label), self)?;
        }
        Ok(())
    }

    /// After the loss of the lead: back to the last snapshot, on the devices that are left.
    fn roll_back(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(snapshot) = self.fallback.take() else {
            // Before the first step there is no state to be lost.
            return match self.position.step {
                0 => self.coordinator.accept_fresh_state(),
                _ => Err(Error::Training(NO_SNAPSHOT.into())),
            };
        };
        self.restore_values(&snapshot)?;
        self.fallback = Some(snapshot);
        observer.observe(&Progress::RolledBack(self.position.step), self)?;
        Ok(())
    }

    /// Loss and metrics over a data set, with the weights as they are.
    ///
    /// # Errors
    /// When the data is not what the model takes, or no device is left.
    pub fn evaluate(&mut self, data: &Arc<dyn Dataset>) -> Result<Tally> {
        self.check_data(data.as_ref())?;
        let sampler = Sampler::new(data.len(), self.options.window(), 0, false, false)?;
        let steps = sampler.steps_per_epoch();
        let mut tally = Tally::default();
        for batch in Loader::start(data.clone(), sampler.batches_from(0, 0).take(steps), PREFETCH)? {
            let batch = Arc::new(batch?);
            let sums = self.coordinator.evaluate(&batch, StepKey::default())?;
            tally.add(&sums, self.task.weight_sum(&batch));
        }
        Ok(tally)
    }

    fn check_data(&self, data: &dyn Dataset) -> Result<()> {
        self.task.check(data)
    }

    /// All weights by name, as device `device` has them; equal on all.
    ///
    /// # Errors
    /// When that device fails.
    pub fn weights_of(&mut self, device: usize) -> Result<Vec<(String, Vec<f32>)>> {
        self.named(|trainer, bucket| trainer.coordinator.read(device, Buffer::Parameter(bucket)))
    }

    /// Overwrites all weights, by name, on every device.
    ///
    /// # Errors
    /// When a parameter has no value of its shape.
    pub fn set_weights(&mut self, weights: &[(String, Vec<f32>)]) -> Result<()> {
        self.write_named(Buffer::Parameter, weights)
    }

    /// The values of each parameter, out of what `read` gives for each bucket.
    pub(super) fn named(
        &mut self,
        read: impl Fn(&mut Self, usize) -> Result<Vec<f32>>,
    ) -> Result<Vec<(String, Vec<f32>)>> {
        let layout = self.coordinator.layout().clone();
        let buckets = (0..layout.buckets().len()).map(|b| read(self, b)).collect::<Result<Vec<_>>>()?;
        let values = |p: &crate::plan::Placed| layout.unpack(p, bytemuck::cast_slice(&buckets[p.bucket]));
        Ok(layout.parameters().iter().map(|p| (p.name.clone(), values(p))).collect())
    }

    pub(super) fn write_named(&mut self, to: impl Fn(usize) -> Buffer, values: &[(String, Vec<f32>)]) -> Result<()> {
        let layout = self.coordinator.layout().clone();
        let find = |name: &str| values.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_slice());
        for bucket in 0..layout.buckets().len() {
            let bytes = layout.pack(bucket, find)?;
            self.coordinator.write(to(bucket), bytemuck::pod_collect_to_vec(&bytes))?;
        }
        Ok(())
    }
}

/// The smallest of the devices' limits, which shared bucket sizes must fit.
pub(super) fn smallest(targets: &[Target]) -> Result<Target> {
    let least = targets.iter().min_by_key(|t| t.max_binding.min(t.max_buffer));
    least.cloned().ok_or_else(|| Error::NoAdapter("no adapter was chosen".into()))
}
