//! The training loop: epochs and steps over a data set, with the position in them, so that a run can stop anywhere and go
//! on from a snapshot as if it had not.

mod fit;
mod step;
mod weights;

use std::sync::Arc;

use super::options::TrainOptions;
use super::position::Position;
use super::record::{EpochRecord, Tally};
use super::task::Task;
use crate::balance::Planner;
use crate::checkpoint::Snapshot;
use crate::coordinator::Coordinator;
use crate::data::{Dataset, Loader, Sampler};
use crate::error::{Error, Result};
use crate::fleet::{GpuWorker, StepKey, WorkerFactory};
use crate::gpu::{Adapter, Device};
use crate::kernel::Target;
use crate::nn;
use crate::optim::UpdatePlan;
use crate::plan::Layout;
use crate::self_test::{Rejected, usable};

/// What is done as soon as a device was lost, before the others make ready for its samples: that takes a while.
pub(super) type WhenLost<'a> = dyn FnMut(&mut Trainer) -> Result<()> + 'a;

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
        let layout = Arc::new(Layout::shared(&graph, &targets)?);
        // What is wrong with the settings ends the run; what is over an adapter's limits leaves that one out.
        options.update_rule().check(&layout)?;
        let count = adapters.len() * replicas;
        let mut factories: Vec<WorkerFactory> = Vec::new();
        for adapter in adapters.iter().flat_map(|a| std::iter::repeat_n(a, replicas)) {
            let (adapter, task, layout, rule) = (adapter.clone(), task.clone(), layout.clone(), options.update_rule());
            let (micro_batch, compression) = (options.micro_batch, options.gradient_compression);
            factories.push(WorkerFactory::new(move || {
                layout.check_limits(&adapter.target())?;
                let update = Arc::new(UpdatePlan::new(&rule, &layout, &adapter.target())?);
                let device = Device::open(&adapter, memory_limit)?;
                let (task, layout) = (task.clone(), layout.clone());
                Ok(Box::new(GpuWorker::new(device, task, layout, update, micro_batch, count > 1, compression)?))
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
        let graph = task.training(1)?;
        let (group, window) = (graph.group(), options.window());
        options.micro_batch.check(group, window)?;
        let planner = Planner::new(&options.split, window, workers.len(), options.deterministic)?
            .in_groups(group)
            .over_buckets(layout.buckets().len());
        let moments = options.update_rule().moments().len();
        let initial = nn::initial_values(&graph, options.seed);
        let coordinator = Coordinator::new(workers, layout, planner, options.endurance, moments)?;
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

    /// The adapters that were left out because they compute wrongly or cannot be tested, and what the self-test found.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The snapshot in host memory that training would go back to. Where no device is left it is all that is left, too.
    pub fn last_snapshot(&self) -> Option<&Snapshot> {
        self.fallback.as_ref()
    }

    /// The settings.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// Checks, before anything is done, that this trainer can train on `train`.
    ///
    /// # Errors
    /// When its samples are not what the model takes, or `drop_last` would leave none.
    pub fn can_train_on(&self, train: &dyn Dataset) -> Result<()> {
        self.task.check(train)?;
        self.sampler(train).map(drop)
    }

    fn sampler(&self, train: &dyn Dataset) -> Result<Sampler> {
        let TrainOptions { seed, shuffle, drop_last, .. } = self.options;
        Sampler::new(train.len(), self.options.window(), seed, shuffle, drop_last)
    }

    /// Loss and metrics over a data set, with the weights as they are.
    ///
    /// # Errors
    /// When the data is not what the model takes, nothing of it counts, or no device is left.
    pub fn evaluate(&mut self, data: &Arc<dyn Dataset>) -> Result<Tally> {
        self.task.check(data.as_ref())?;
        self.evaluate_checked(data, &mut |_| Ok(()))
    }

    /// The same for data that has been checked; `lost` is called when a device was lost over it.
    pub(super) fn evaluate_checked(&mut self, data: &Arc<dyn Dataset>, lost: &mut WhenLost<'_>) -> Result<Tally> {
        let sampler = Sampler::new(data.len(), self.options.window(), 0, false, false)?;
        let steps = sampler.steps_per_epoch();
        let mut tally = Tally::default();
        for batch in Loader::start(data.clone(), sampler.batches_from(0, 0).take(steps), PREFETCH)? {
            let batch = Arc::new(batch?);
            let weight = self.task.weight_sum(&batch);
            let sums = loop {
                match self.coordinator.evaluate(&batch, StepKey::default(), weight)? {
                    Some(sums) => break sums,
                    None => lost(self)?,
                }
            };
            tally.add(&sums, weight, self.task.metric_weight_sum(&batch));
        }
        if tally.weight == 0.0 {
            let message = format!(
                "no target of the {} samples to evaluate counts: all are ignored, or weigh nothing; there is no mean loss",
                data.len()
            );
            return Err(Error::Training(message));
        }
        Ok(tally)
    }
}
