//! One optimizer step over all devices: shard → gradients → sums in replica order → update on the lead → broadcast.
//!
//! A step is all or nothing. When a device fails while gradients are being computed, its rows go to the others and the
//! step's gradients are computed again, so no sample is lost or counted twice. When the lead fails, at whatever moment, its
//! optimizer state is gone: the next step does nothing but say so, and the caller goes back to a snapshot.

mod buckets;
mod leading;
mod learning;
mod membership;
mod passes;

use std::sync::Arc;
use std::time::Instant;

use self::learning::PAYBACK;
use self::passes::summed;
use super::fleet::{Fleet, Loss, Setback};
use super::idle::Idle;
use super::lead::{Handover, Leads};
use super::patience::Endurance;
use super::probe::Probes;
use super::reduce::Reducer;
use super::replica::WorkerFactory;
use super::split::{Resplit, Splitter};
use super::worker::StepKey;
use crate::data::Batch;
use crate::error::Result;
use crate::optim::{NormOutcome, Update};
use crate::plan::Layout;
use crate::trace;

/// Seconds of a step by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Phases {
    /// Until the last device's gradients were summed.
    pub gradients: f64,
    /// Update on the lead, and hand-over of the weights to the others.
    pub update: f64,
}

/// What a step did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepReport {
    /// Σ weight·statistic over the batch.
    pub statistics: Vec<f64>,
    /// Whether the caller let the update be applied.
    pub accepted: bool,
    /// Gradient norm, and whether the update was applied.
    pub outcome: NormOutcome,
    /// Rows of the batch, by device.
    pub shards: Vec<usize>,
    /// Seconds that each device took for its rows.
    pub busy: Vec<f64>,
    /// Of these, in kernels, where the device has a clock.
    pub kernels: Vec<Option<f64>>,
    /// Where the time went.
    pub phases: Phases,
    /// A change of the split that starts with the next step.
    pub resplit: Option<Resplit>,
}

/// How a step ended.
#[derive(Debug)]
pub enum StepEnd {
    /// All devices have the new weights.
    Done(StepReport),
    /// A device was lost before the update, so nothing has changed. The caller may tell of it, and takes the same step again,
    /// for which the others first make ready.
    DeviceLost,
    /// The device with the optimizer's state is gone; another one will lead, from zero state. So it is with every step until
    /// a snapshot has been restored.
    LeadLost,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) fleet: Fleet,
    lead: usize,
    leads: Leads,
    /// Values that the optimizer keeps of each weight.
    moments: usize,
    /// Devices without rows that have not followed the updates: they get the weights when these are needed.
    stale: Vec<bool>,
    reducer: Reducer,
    splitter: Splitter,
    pub(super) layout: Arc<Layout>,
    /// Weights on their way to the followers; reused once these have taken them.
    broadcasting: Vec<Arc<Vec<f32>>>,
    /// The split changed, and devices have not been made ready for it.
    unsettled: bool,
    /// Which devices worked when all was last settled.
    settled: Vec<bool>,
    /// The optimizer's state was lost with its device, and nobody has gone back to a snapshot yet.
    state_lost: bool,
    micro_batches: Vec<usize>,
    steps_since_refit: u64,
    /// Devices that run a size for the first time in their next step: drivers compile then, so it is not measured.
    fresh: Vec<bool>,
    /// Seconds that making ready for a new split took, the last time.
    change_cost: f64,
    /// Steps that are still to come, in which a better split must pay for the change.
    horizon: u64,
    joined: Vec<String>,
    probes: Probes,
    /// Which devices got no samples after the last step.
    idle: Vec<bool>,
    idled: Vec<Idle>,
    employed: Vec<String>,
    handovers: Vec<Handover>,
    /// Devices of which it was told that they have not the memory to be measured or compared.
    cramped: Vec<bool>,
}

impl Coordinator {
    /// Starts a thread for each worker and waits until all exist; the optimizer keeps `moments` values of each weight. A device
    /// that cannot start is left out, as [`Coordinator::take_losses`] tells.
    ///
    /// # Errors
    /// When none starts.
    pub fn new(
        factories: Vec<WorkerFactory>,
        layout: Arc<Layout>,
        splitter: Splitter,
        endurance: Endurance,
        moments: usize,
    ) -> Result<Self> {
        let fleet = Fleet::start(factories, endurance)?;
        let mut coordinator = Self {
            lead: 0,
            leads: Leads::new(fleet.len()),
            moments,
            stale: vec![false; fleet.len()],
            reducer: Reducer::new(&layout),
            splitter,
            layout,
            broadcasting: Vec::new(),
            unsettled: true,
            settled: vec![true; fleet.len()],
            state_lost: false,
            micro_batches: vec![0; fleet.len()],
            steps_since_refit: 0,
            fresh: vec![true; fleet.len()],
            change_cost: 0.0,
            horizon: PAYBACK,
            joined: Vec::new(),
            probes: Probes::new(fleet.len()),
            idle: vec![false; fleet.len()],
            idled: Vec::new(),
            employed: Vec::new(),
            handovers: Vec::new(),
            cramped: vec![false; fleet.len()],
            fleet,
        };
        coordinator.elect()?;
        coordinator.settle()?;
        coordinator.state_lost = false; // there was none yet
        Ok(coordinator)
    }

    /// The devices' names.
    pub fn labels(&self) -> &[String] {
        self.fleet.labels()
    }

    /// Which devices work.
    pub fn alive(&self) -> &[bool] {
        self.fleet.alive()
    }

    /// The device that applies updates.
    pub fn lead(&self) -> usize {
        self.lead
    }

    /// How batches are divided.
    pub fn splitter(&self) -> &Splitter {
        &self.splitter
    }

    /// Micro-batch sizes in use, by device.
    pub fn micro_batches(&self) -> &[usize] {
        &self.micro_batches
    }

    /// Where the parameters are.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Tells how many steps are still to come, in which a better split must pay for the change to it.
    pub fn set_horizon(&mut self, steps: u64) {
        self.horizon = steps;
    }

    /// Devices that stopped working since the last call.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        self.fleet.take_losses()
    }

    /// Names of the devices that came back since the last call.
    pub fn take_joined(&mut self) -> Vec<String> {
        std::mem::take(&mut self.joined)
    }

    /// Devices that get no samples since the last call, and why.
    pub fn take_idle(&mut self) -> Vec<Idle> {
        std::mem::take(&mut self.idled)
    }

    /// Changes of the lead since the last call, but for those that a failure forced.
    pub fn take_handovers(&mut self) -> Vec<Handover> {
        std::mem::take(&mut self.handovers)
    }

    /// Names of the devices that get samples again since the last call.
    pub fn take_employed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.employed)
    }

    /// One step: the gradients of `batch`, averaged by `update`'s weight, applied everywhere if `accepts` says so of the
    /// statistics' sums.
    ///
    /// # Errors
    /// When no device is left.
    pub fn step(
        &mut self,
        batch: &Arc<Batch>,
        key: StepKey,
        update: &Update,
        accepts: impl FnOnce(&[f64]) -> bool,
    ) -> Result<StepEnd> {
        let (begin, stood_still) = (Instant::now(), self.fleet.stood_still());
        let _span = trace::span(|| "steps".to_owned(), "step").map(|span| span.rows(batch.len()));
        self.fleet.retry(key.step);
        self.let_in()?;
        self.settle()?;
        if self.state_lost() {
            return Ok(StepEnd::LeadLost);
        }
        let (shards, reports) = match self.gradients(batch, key) {
            Ok(done) => done,
            Err(Setback::Device(_)) if self.state_lost() => return Ok(StepEnd::LeadLost),
            Err(Setback::Device(_)) => return Ok(StepEnd::DeviceLost),
            Err(Setback::Fatal(error)) => return Err(error),
        };
        let gradients = begin.elapsed().as_secs_f64();
        let statistics = summed(&reports);
        let accepted = accepts(&statistics);
        let outcome = match accepted.then(|| self.update(update)) {
            Some(Ok(outcome)) => outcome,
            // Nobody has looked at the gradients.
            None => NormOutcome { norm: f32::NAN, ..NormOutcome::default() },
            Some(Err(Setback::Device(_))) => NormOutcome::default(),
            Some(Err(Setback::Fatal(error))) => return Err(error),
        };
        if self.state_lost() {
            return Ok(StepEnd::LeadLost);
        }
        let phases = Phases { gradients, update: begin.elapsed().as_secs_f64() - gradients };
        let busy: Vec<f64> = reports.iter().map(|r| r.as_ref().map_or(0.0, |r| r.seconds)).collect();
        let kernels = reports.iter().map(|r| r.as_ref()?.kernels).collect();
        let applied = outcome.applied == 1;
        // What a device that was lost over the update leaves to do comes after it was told of. Times in which this process
        // mostly stood still say nothing.
        let stopped = (self.fleet.stood_still() - stood_still).as_secs_f64() > 0.5 * begin.elapsed().as_secs_f64();
        let resplit = match self.settled == self.fleet.alive() && !stopped {
            true => self.learn(&shards, &busy, phases, applied)?,
            false => None,
        };
        Ok(StepEnd::Done(StepReport { statistics, accepted, outcome, shards, busy, kernels, phases, resplit }))
    }

    /// Σ weight·statistic of `batch`, forward only; `None` when a device was lost over it: then the same is to be asked again,
    /// of the others.
    ///
    /// # Errors
    /// When no device is left.
    pub fn evaluate(&mut self, batch: &Arc<Batch>, key: StepKey) -> Result<Option<Vec<f64>>> {
        self.settle()?;
        match self.try_evaluate(batch, key) {
            Ok(statistics) => Ok(Some(statistics)),
            Err(Setback::Device(_)) => Ok(None),
            Err(Setback::Fatal(error)) => Err(error),
        }
    }
}
