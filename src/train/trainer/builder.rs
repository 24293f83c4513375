//! How a [`Trainer`] is made: its settings by name.

use std::sync::Arc;

use super::Trainer;
use crate::balance::Planner;
use crate::coordinator::Coordinator;
use crate::error::{Error, Result};
use crate::fleet::{GpuWorker, WorkerFactory};
use crate::gpu::{Adapter, Device};
use crate::graph::Graph;
use crate::kernel::Target;
use crate::nn;
use crate::optim::UpdatePlan;
use crate::plan::Layout;
use crate::self_test::usable;
use crate::train::options::TrainOptions;
use crate::train::position::Position;
use crate::train::task::Task;

/// A [`Trainer`] that is being made; see [`Trainer::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct TrainerBuilder {
    task: Task,
    options: TrainOptions,
    adapters: Vec<Adapter>,
    replicas: usize,
    memory_limit: Option<u64>,
}

impl TrainerBuilder {
    /// The adapters to train on, all at once. One that fails the self-test is left out, as [`Trainer::rejected`] tells.
    pub fn adapters(mut self, adapters: &[Adapter]) -> Self {
        self.adapters = adapters.to_vec();
        self
    }

    /// Devices of each adapter; 1 where it is not said.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Most bytes of memory that each device may take; `None`, as where it is not said, for as many as the driver
    /// gives.
    pub fn memory_limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory_limit = bytes.into();
        self
    }

    /// Opens the devices, and puts freshly initialised weights on them.
    ///
    /// # Errors
    /// When a setting is out of range, the model cannot work, no adapter passes the self-test, or no device can run it.
    pub fn start(self) -> Result<Trainer> {
        let Self { task, options, adapters, replicas, memory_limit } = self;
        if replicas == 0 {
            return Err(Error::invalid("devices.replicas", "expected 1 or more, got 0"));
        }
        options.validate()?;
        let graph = task.training(1)?;
        let (adapters, rejected) = usable(adapters)?;
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
        Ok(Trainer { rejected, ..Trainer::over(task, options, factories, layout, &graph)? })
    }
}

impl Trainer {
    /// A trainer of `task`, to be made by naming its adapters and calling [`TrainerBuilder::start`].
    pub fn builder(task: Task, options: TrainOptions) -> TrainerBuilder {
        TrainerBuilder { task, options, adapters: Vec::new(), replicas: 1, memory_limit: None }
    }

    /// A trainer over workers of any kind, each made on its own thread. All hold the parameters as `layout` says.
    ///
    /// # Errors
    /// When a setting is out of range, or no worker starts.
    #[cfg(feature = "test-support")]
    pub fn with_workers(
        task: Task,
        options: TrainOptions,
        workers: Vec<WorkerFactory>,
        layout: Arc<Layout>,
    ) -> Result<Self> {
        options.validate()?;
        let graph = task.training(1)?;
        Self::over(task, options, workers, layout, &graph)
    }

    /// The same, of checked settings; `graph` is the task's for one sample.
    fn over(
        task: Task,
        options: TrainOptions,
        workers: Vec<WorkerFactory>,
        layout: Arc<Layout>,
        graph: &Graph,
    ) -> Result<Self> {
        let (group, window) = (graph.group(), options.window());
        options.micro_batch.check(group, window)?;
        let planner = Planner::new(&options.split, window, workers.len(), options.deterministic)?
            .in_groups(group)
            .over_buckets(layout.buckets().len());
        let moments = options.update_rule().moments().len();
        let initial = nn::initial_values(graph, options.seed);
        let coordinator = Coordinator::new(workers, layout, planner, options.endurance, moments)?;
        let mut trainer =
            Self { task, options, coordinator, position: Position::default(), fallback: None, rejected: vec![] };
        trainer.set_weights(&initial)?;
        Ok(trainer)
    }
}
