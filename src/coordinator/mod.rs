//! One optimizer step over all devices: rows → gradients → sums in replica order → update → hand-over of the weights.
//! It sees buckets' values and sample counts, not ops; epochs and files are the trainer's.
//!
//! A step is all or nothing. When a device fails while gradients are being computed, its rows go to the others and the
//! step's gradients are computed again, so no sample is lost or counted twice. When the device that updates fails, at
//! whatever moment, the optimizer's state is gone: steps do nothing but say so ([`Error::StateLost`]), and the caller
//! goes back to a snapshot.

mod buckets;
mod cross_check;
mod learn;
mod membership;
mod reduce;
mod step;

use std::sync::Arc;

pub use step::Phases;
pub(crate) use step::{StepInput, StepReport};

use self::reduce::Reducer;
use crate::balance::{PAYBACK, Planner};
use crate::error::{Error, Result};
use crate::fleet::{Change, Endurance, Fleet, ShardReport, WorkerFactory};
use crate::plan::Layout;

/// Takes optimizer steps over all devices of a run; all have the same weights after each.
#[derive(Debug)]
pub struct Coordinator {
    fleet: Fleet,
    planner: Planner,
    reducer: Reducer,
    layout: Arc<Layout>,
    /// Values that the optimizer keeps of each weight.
    moments: usize,
    /// The fleet's generation that all is settled for: rows are given, somebody updates, and all are prepared. `None`
    /// where the rows have changed.
    settled: Option<u64>,
    /// The optimizer's state was lost with its device, and nobody has gone back to a snapshot yet.
    state_lost: bool,
    /// Steps that are still to come, in which a change must pay for itself.
    steps_left: u64,
    /// Weights on their way to the devices; reused once these have taken them.
    broadcasting: Vec<Arc<Vec<f32>>>,
    /// Devices that a step waits for; reused from step to step.
    waiting: Vec<usize>,
    /// What devices reported of their shards, by device; reused from step to step.
    reports: Vec<Option<ShardReport>>,
}

impl Coordinator {
    /// Starts a thread for each worker and waits until all exist; the optimizer keeps `moments` values of each weight.
    /// A device that cannot start is left out, as [`Coordinator::take_changes`] tells.
    ///
    /// # Errors
    /// When none starts.
    pub(crate) fn new(
        factories: Vec<WorkerFactory>,
        layout: Arc<Layout>,
        planner: Planner,
        endurance: Endurance,
        moments: usize,
    ) -> Result<Self> {
        let mut coordinator = Self {
            fleet: Fleet::start(factories, endurance)?,
            planner,
            reducer: Reducer::new(&layout),
            layout,
            moments,
            settled: None,
            state_lost: false,
            steps_left: PAYBACK,
            broadcasting: Vec::new(),
            waiting: Vec::new(),
            reports: Vec::new(),
        };
        coordinator.elect()?;
        coordinator.accept_fresh_state()?;
        Ok(coordinator)
    }

    /// The devices' names.
    pub fn labels(&self) -> Vec<String> {
        (0..self.fleet.len()).map(|device| self.fleet.label(device).to_owned()).collect()
    }

    /// Which devices work.
    pub fn alive(&self) -> Vec<bool> {
        (0..self.fleet.len()).map(|device| self.fleet.get(device).is_some()).collect()
    }

    /// The device that applies updates.
    pub fn lead(&self) -> usize {
        self.planner.plan().lead()
    }

    /// Rows of a full batch, by device.
    pub fn split(&self) -> &[usize] {
        self.planner.full()
    }

    /// Micro-batch sizes in use, by device; 0 of one that is not there or has no rows yet.
    pub fn micro_batches(&self) -> Vec<usize> {
        (0..self.fleet.len()).map(|device| self.fleet.get(device).map_or(0, |present| present.micro_batch)).collect()
    }

    /// Number of devices, those included that do not work.
    pub(crate) fn devices(&self) -> usize {
        self.fleet.len()
    }

    /// Where the parameters are.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// What has happened to the devices since the last call, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.fleet.take_changes()
    }

    /// Whether the optimizer's state is there; a snapshot taken without would be a mixture.
    ///
    /// # Errors
    /// [`Error::StateLost`] from when it was lost with its device until a snapshot is restored.
    pub(crate) fn has_state(&self) -> Result<()> {
        let lost = self.state_lost || self.fleet.get(self.lead()).is_none();
        if lost { Err(Error::StateLost) } else { Ok(()) }
    }
}
