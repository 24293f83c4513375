//! One optimizer step over all devices: shard → gradients → sums in replica order → update on the lead → broadcast.
//!
//! A step is all or nothing. When a device fails while gradients are being computed, its rows go to the others and the
//! step's gradients are computed again, so no sample is lost or counted twice. When the lead fails, at whatever moment, its
//! optimizer state is gone: the next step does nothing but say so, and the caller goes back to a snapshot.

use std::sync::Arc;
use std::time::Instant;

use super::fleet::{Endurance, Fleet, Loss, Setback};
use super::reduce::Reducer;
use super::replica::{Event, Job, WorkerFactory};
use super::split::{Resplit, Splitter};
use super::worker::{Shard, ShardReport, StepKey};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::optim::{NormOutcome, Update};
use crate::plan::{Buffer, Layout};
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
    /// Gradient norm, and whether the update was applied.
    pub outcome: NormOutcome,
    /// Rows of the batch, by device.
    pub shards: Vec<usize>,
    /// Seconds that each device took for its rows.
    pub busy: Vec<f64>,
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
    /// The device with the optimizer's state is gone; another one leads now, from zero state. So it is with every step until
    /// a snapshot has been restored.
    LeadLost,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) fleet: Fleet,
    lead: usize,
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
}

/// Steps between two looks at whether another split would be faster.
const REFIT_EVERY: u64 = 5;
/// Steps within which a better split must have paid for the change.
const PAYBACK: u64 = 500;

impl Coordinator {
    /// Starts a thread for each worker and waits until all exist. A device that cannot start is left out, as
    /// [`Coordinator::take_losses`] tells.
    ///
    /// # Errors
    /// When none starts.
    pub fn new(
        factories: Vec<WorkerFactory>,
        layout: Arc<Layout>,
        splitter: Splitter,
        endurance: Endurance,
    ) -> Result<Self> {
        let fleet = Fleet::start(factories, endurance)?;
        let lengths: Vec<usize> = layout.buckets().iter().map(|bytes| *bytes as usize / 4).collect();
        let mut coordinator = Self {
            lead: 0,
            reducer: Reducer::new(&lengths),
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

    /// Divides full batches as a checkpoint says.
    ///
    /// # Errors
    /// When the saved split does not fit, or a device cannot take its rows.
    pub fn restore_split(&mut self, full: Vec<usize>) -> Result<()> {
        self.splitter.restore(full)?;
        self.unsettled = true;
        self.settle()
    }

    /// Makes sure of a lead that works. Whether the optimizer's state was lost and has not been restored yet; a snapshot
    /// taken then would be a mixture.
    pub(super) fn state_lost(&mut self) -> Result<bool> {
        self.settle()?;
        Ok(self.state_lost)
    }

    /// Makes sure of a lead that works, and takes its optimizer state as it is: the caller is about to write it.
    pub(super) fn accept_fresh_state(&mut self) -> Result<()> {
        self.settle()?;
        self.state_lost = false;
        Ok(())
    }

    /// One step: the gradients of `batch`, averaged by `update`'s weight, applied everywhere.
    ///
    /// # Errors
    /// When no device is left.
    pub fn step(&mut self, batch: &Arc<Batch>, key: StepKey, update: &Update) -> Result<StepEnd> {
        let begin = Instant::now();
        let _span = trace::span(|| "steps".to_owned(), "step").map(|span| span.rows(batch.len()));
        self.fleet.retry(key.step)?;
        self.let_in()?;
        let (shards, reports) = loop {
            if self.state_lost()? {
                return Ok(StepEnd::LeadLost);
            }
            match self.gradients(batch, key) {
                Ok(done) => break done,
                Err(Setback::Device(_)) => {}
                Err(Setback::Fatal(error)) => return Err(error),
            }
        };
        let gradients = begin.elapsed().as_secs_f64();
        let outcome = match self.update(update) {
            Ok(outcome) => outcome,
            Err(Setback::Device(_)) => NormOutcome::default(),
            Err(Setback::Fatal(error)) => return Err(error),
        };
        if self.state_lost()? {
            return Ok(StepEnd::LeadLost);
        }
        let phases = Phases { gradients, update: begin.elapsed().as_secs_f64() - gradients };
        let busy: Vec<f64> = reports.iter().map(|r| r.as_ref().map_or(0.0, |r| r.seconds)).collect();
        let statistics = summed(&reports);
        let resplit = self.learn(batch.len(), &shards, &busy)?;
        Ok(StepEnd::Done(StepReport { statistics, outcome, shards, busy, phases, resplit }))
    }

    /// Σ weight·statistic of `batch`, forward only.
    ///
    /// # Errors
    /// When no device is left.
    pub fn evaluate(&mut self, batch: &Arc<Batch>, key: StepKey) -> Result<Vec<f64>> {
        loop {
            self.settle()?;
            match self.try_evaluate(batch, key) {
                Ok(statistics) => return Ok(statistics),
                Err(Setback::Device(_)) => {}
                Err(Setback::Fatal(error)) => return Err(error),
            }
        }
    }

    /// Overwrites a bucket on every device (optimizer state: on the lead, which alone has it).
    ///
    /// # Errors
    /// When no device is left.
    pub fn write(&mut self, buffer: Buffer, values: Vec<f32>) -> Result<()> {
        self.settle()?;
        let values = Arc::new(values);
        let only_lead = matches!(buffer, Buffer::State { .. });
        let targets: Vec<usize> = self.fleet.live().filter(|&i| !only_lead || i == self.lead).collect();
        let ticket = self.fleet.ticket();
        for &index in &targets {
            self.fleet.send(index, ticket, Job::Write { buffer, values: values.clone() });
        }
        self.fleet.collect(ticket, targets, |_, _| {})
    }

    /// Reads a bucket from device `index`.
    ///
    /// # Errors
    /// When that device fails, or has failed before.
    pub fn read(&mut self, index: usize, buffer: Buffer) -> Result<Vec<f32>> {
        if !self.alive()[index] {
            return Err(Error::Training(format!("{} no longer works, {buffer} is gone", self.labels()[index])));
        }
        let ticket = self.fleet.ticket();
        self.fleet.send(index, ticket, Job::Read { buffer });
        let mut read = None;
        self.fleet.collect(ticket, vec![index], |_, event| {
            if let Event::Values(values) = event {
                read = Some(values);
            }
        })?;
        read.ok_or_else(|| Error::Training(format!("{} failed while {buffer} was read from it", self.labels()[index])))
    }

    /// Compares the weights of all devices by their fingerprints.
    ///
    /// # Errors
    /// When a device's differ from the lead's; the message names the device and the buckets. Nothing is repaired: how they
    /// came to differ is unknown, and so is which device is right.
    pub fn verify_weights(&mut self) -> Result<()> {
        self.settle()?;
        let asked: Vec<usize> = self.fleet.live().collect();
        let ticket = self.fleet.ticket();
        asked.iter().for_each(|&index| self.fleet.send(index, ticket, Job::Fingerprints));
        let mut prints: Vec<Option<Vec<u64>>> = vec![None; self.fleet.len()];
        self.fleet.collect(ticket, asked, |index, event| {
            if let Event::Fingerprints(values) = event {
                prints[index] = Some(values);
            }
        })?;
        let Some(expected) = prints[self.lead].clone() else { return Ok(()) };
        for (index, found) in prints.iter().enumerate() {
            let Some(found) = found else { continue };
            let buckets: Vec<usize> = (0..expected.len()).filter(|&b| found.get(b) != expected.get(b)).collect();
            if !buckets.is_empty() {
                return Err(Error::Training(format!(
                    "the weights of {} differ from those of {} in buckets {buckets:?}: one of the two devices or its \
                     driver has lost or changed data. Go on from the last checkpoint, without the device you trust less",
                    self.labels()[index],
                    self.labels()[self.lead]
                )));
            }
        }
        Ok(())
    }

    /// After a change: gives the rows of devices that failed to the others, replaces a lead that failed, and has every
    /// device make ready for its rows of a full batch. Again, when another one fails over it.
    pub(super) fn settle(&mut self) -> Result<()> {
        loop {
            let changed = self.settled != self.fleet.alive();
            if !changed && !std::mem::take(&mut self.unsettled) {
                return Ok(());
            }
            let alive = self.fleet.alive().to_vec();
            self.state_lost |= !alive[self.lead];
            for index in (0..alive.len()).filter(|&i| !alive[i]) {
                self.splitter.remove(index, &alive);
            }
            let ready = if alive[self.lead] { Ok(()) } else { self.elect() };
            if let Err(error) = ready.and_then(|()| self.prepare()) {
                self.unsettled = true;
                return Err(error);
            }
            self.settled = alive;
        }
    }

    /// Lets in devices that have come back: with the weights as they are now, and a share to be measured with.
    fn let_in(&mut self) -> Result<()> {
        while let Some(index) = self.fleet.arrived() {
            if self.state_lost()? {
                return Ok(());
            }
            let buckets: Vec<Buffer> = (0..self.layout.buckets().len()).map(Buffer::Parameter).collect();
            let weights = buckets.iter().map(|&buffer| self.read(self.lead, buffer)).collect::<Result<Vec<_>>>();
            let weights = match weights {
                Ok(weights) => weights,
                Err(error) => return if self.state_lost()? { Ok(()) } else { Err(error) },
            };
            self.fleet.admit(index);
            let ticket = self.fleet.ticket();
            for (&buffer, values) in buckets.iter().zip(weights) {
                self.fleet.send(index, ticket, Job::Write { buffer, values: Arc::new(values) });
            }
            self.splitter.admit(index, self.fleet.alive());
            self.joined.push(self.labels()[index].clone());
            self.unsettled = true;
            self.settle()?;
        }
        Ok(())
    }

    /// Makes the first device that works the lead.
    fn elect(&mut self) -> Result<()> {
        loop {
            let first = self.fleet.live().next();
            self.lead = first.ok_or_else(|| Error::Training("no device is left".into()))?;
            let ticket = self.fleet.ticket();
            self.fleet.send(self.lead, ticket, Job::Lead);
            self.fleet.collect_slow(ticket, vec![self.lead], |_, _| {})?;
            if self.alive()[self.lead] {
                return Ok(());
            }
        }
    }

    /// Has every device make ready for its rows of a full batch.
    fn prepare(&mut self) -> Result<()> {
        let working: Vec<usize> = self.fleet.live().filter(|&i| self.splitter.full()[i] > 0).collect();
        let ticket = self.fleet.ticket();
        for &index in &working {
            self.fleet.send(index, ticket, Job::Prepare { rows: self.splitter.full()[index] });
        }
        let begin = Instant::now();
        let mut sizes = self.micro_batches.clone();
        let outcome = self.fleet.collect_slow(ticket, working, |index, event| {
            if let Event::Prepared(size) = event {
                sizes[index] = size;
            }
        });
        for (index, size) in sizes.iter().enumerate() {
            self.fresh[index] |= *size != self.micro_batches[index];
        }
        self.micro_batches = sizes;
        self.change_cost = begin.elapsed().as_secs_f64();
        outcome
    }

    /// Contiguous row ranges of a batch of `samples`, by device.
    fn shards(&self, batch: &Arc<Batch>, key: StepKey) -> (Vec<usize>, Vec<(usize, Shard)>) {
        let counts = self.splitter.shards(batch.len());
        let mut start = 0;
        let mut shards = Vec::new();
        for (index, &count) in counts.iter().enumerate() {
            if count > 0 {
                shards.push((index, Shard { batch: batch.clone(), rows: start..start + count, key }));
            }
            start += count;
        }
        (counts, shards)
    }

    /// Computes the gradients of all shards and leaves their sum on the lead.
    fn gradients(
        &mut self,
        batch: &Arc<Batch>,
        key: StepKey,
    ) -> std::result::Result<(Vec<usize>, Vec<Option<ShardReport>>), Setback> {
        let ticket = self.fleet.ticket();
        let (counts, shards) = self.shards(batch, key);
        let participants: Vec<usize> = shards.iter().map(|(index, _)| *index).collect();
        // The lead alone needs no detour over the host: its sums are where the update reads them.
        let stream = participants != [self.lead];
        for (index, shard) in shards {
            self.fleet.send(index, ticket, Job::Gradients { shard, stream });
        }
        self.reducer.begin(participants.len(), self.fleet.pool());
        let mut reports = vec![None; self.fleet.len()];
        let mut computing = participants.len();
        let mut summing = if stream { self.layout.buckets().len() } else { 0 };
        while computing > 0 || summing > 0 {
            let owing: Vec<usize> = participants.iter().copied().filter(|&p| reports[p].is_none()).collect();
            match self.fleet.next(ticket, &owing)? {
                (index, Event::Bucket { bucket, values }) => {
                    let contributor = participants.iter().position(|&p| p == index).expect("it was given rows");
                    if let Some(values) = self.reducer.add(contributor, bucket, values, self.fleet.pool()) {
                        let buffer = Buffer::Gradient(bucket);
                        self.fleet.send(self.lead, ticket, Job::Write { buffer, values });
                        summing -= 1;
                    }
                }
                (index, Event::Shard(report)) => {
                    reports[index] = Some(report);
                    computing -= 1;
                }
                _ => {}
            }
        }
        Ok((counts, reports))
    }

    /// Updates the lead's weights and passes them on.
    fn update(&mut self, update: &Update) -> std::result::Result<NormOutcome, Setback> {
        let ticket = self.fleet.ticket();
        let stream = self.fleet.live().count() > 1;
        for values in std::mem::take(&mut self.broadcasting) {
            if let Ok(values) = Arc::try_unwrap(values) {
                self.fleet.pool().give(values);
            }
        }
        self.fleet.send(self.lead, ticket, Job::Update { update: *update, stream });
        loop {
            match self.fleet.next(ticket, &[self.lead]) {
                Ok((_, Event::Bucket { bucket, values })) => {
                    let values = Arc::new(values);
                    for index in self.fleet.live().filter(|&i| i != self.lead) {
                        let buffer = Buffer::Parameter(bucket);
                        self.fleet.send(index, ticket, Job::Write { buffer, values: values.clone() });
                    }
                    self.broadcasting.push(values);
                }
                // The lead hands out every bucket before it says this.
                Ok((_, Event::Updated(outcome))) => return Ok(outcome),
                Ok(_) => {}
                Err(Setback::Device(index)) if index != self.lead => {}
                Err(setback) => return Err(setback),
            }
        }
    }

    fn try_evaluate(&mut self, batch: &Arc<Batch>, key: StepKey) -> std::result::Result<Vec<f64>, Setback> {
        let ticket = self.fleet.ticket();
        let (_, shards) = self.shards(batch, key);
        let mut waiting: Vec<usize> = shards.iter().map(|(index, _)| *index).collect();
        for (index, shard) in shards {
            self.fleet.send(index, ticket, Job::Evaluate { shard });
        }
        let mut reports = vec![None; self.fleet.len()];
        while !waiting.is_empty() {
            if let (index, Event::Shard(report)) = self.fleet.next(ticket, &waiting)? {
                reports[index] = Some(report);
                waiting.retain(|&w| w != index);
            }
        }
        Ok(summed(&reports))
    }

    /// Learns from a step's timings; now and then moves rows to where they are done sooner.
    fn learn(&mut self, samples: usize, shards: &[usize], busy: &[f64]) -> Result<Option<Resplit>> {
        // A short batch pads its micro-batches: its times say little about full ones.
        if samples != self.splitter.full().iter().sum::<usize>() {
            return Ok(None);
        }
        for (index, (&rows, &seconds)) in shards.iter().zip(busy).enumerate() {
            if rows > 0 && self.alive()[index] && !std::mem::take(&mut self.fresh[index]) {
                self.splitter.observe(index, rows, seconds);
            }
        }
        self.steps_since_refit += 1;
        if self.steps_since_refit < REFIT_EVERY {
            return Ok(None);
        }
        self.steps_since_refit = 0;
        let least = self.change_cost / self.horizon.clamp(1, PAYBACK) as f64;
        let resplit = self.splitter.refit(self.fleet.alive(), least);
        self.unsettled |= resplit.is_some();
        self.settle()?;
        Ok(resplit)
    }
}

/// Sums of the devices' statistics, in replica order.
fn summed(reports: &[Option<ShardReport>]) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    for report in reports.iter().flatten() {
        sums.resize(sums.len().max(report.statistics.len()), 0.0);
        sums.iter_mut().zip(&report.statistics).for_each(|(sum, s)| *sum += s);
    }
    sums
}
