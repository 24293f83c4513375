//! A step from top to bottom: the rows, their gradients, the ordered sums, the update, the hand-over of the weights.
//! And forward passes, which end after the first.

use std::sync::Arc;
use std::time::Instant;

use super::Coordinator;
use crate::balance::Resplit;
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::fleet::{Answer, Event, Job, Shard, ShardReport, StepKey};
use crate::optim::{NormOutcome, Update};
use crate::plan::Buffer;
use crate::trace;

/// What a step goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepInput<'a> {
    pub(crate) batch: &'a Arc<Batch>,
    pub(crate) key: StepKey,
    /// What the batch's sums are divided by to give means.
    pub(crate) weight: f64,
    pub(crate) update: Update,
    /// The mean loss above which the update is not applied.
    pub(crate) loss_limit: Option<f64>,
    /// Steps that are to come after this one.
    pub(crate) steps_left: u64,
}

impl StepInput<'_> {
    /// Whether the update is applied, by the sums of the batch's statistics, the loss first.
    fn accepts(&self, statistics: &[f64]) -> bool {
        self.loss_limit.is_none_or(|limit| statistics[0] / self.weight <= limit)
    }
}

/// Seconds of a step by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Phases {
    /// Until the last device's gradients were summed.
    pub gradients: f64,
    /// Update, and hand-over of the weights to the others.
    pub update: f64,
}

/// What a step did.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StepReport {
    /// Σ weight·statistic over the batch.
    pub(crate) statistics: Vec<f64>,
    /// Whether the loss was not above its limit.
    pub(crate) accepted: bool,
    /// Gradient norm, and whether the update was applied.
    pub(crate) outcome: NormOutcome,
    /// Rows of the batch, by device.
    pub(crate) rows: Vec<usize>,
    /// Seconds that each device took for its rows.
    pub(crate) busy: Vec<f64>,
    /// Of these, in kernels, where the device has a clock.
    pub(crate) kernels: Vec<Option<f64>>,
    /// Where the time went.
    pub(crate) phases: Phases,
    /// A change of the split that starts with the next step.
    pub(crate) resplit: Option<Resplit>,
}

impl Coordinator {
    /// One step; all devices that work have the new weights after it. `None` when a device was lost before the update,
    /// so nothing has changed: the caller may tell of it, and takes the same step again, for which the others first
    /// prepare.
    ///
    /// # Errors
    /// [`Error::StateLost`] when the device that updates is gone, until a snapshot is restored; when no device is left.
    pub(crate) fn step(&mut self, input: &StepInput<'_>) -> Result<Option<StepReport>> {
        let (begin, stood_still) = (Instant::now(), self.fleet.stood_still());
        let _span = trace::span(|| "steps".to_owned(), "step").map(|span| span.rows(input.batch.len()));
        self.fleet.retry(input.key.step);
        self.let_in()?;
        self.settle()?;
        self.has_state()?;
        self.steps_left = input.steps_left;

        let rows = self.planner.training_rows(input.batch.len());
        let computed = self.gradients(input, &rows)?;
        self.has_state()?;
        if !computed {
            return Ok(None);
        }
        let gradients = begin.elapsed().as_secs_f64();
        let statistics = summed(&self.reports);
        let accepted = input.accepts(&statistics);
        let outcome = match accepted {
            true => self.update(&input.update)?,
            // Nobody has looked at the gradients.
            false => NormOutcome { norm: f32::NAN, ..NormOutcome::default() },
        };
        self.has_state()?;
        let phases = Phases { gradients, update: begin.elapsed().as_secs_f64() - gradients };

        let applied = outcome.applied == 1;
        if !applied {
            self.clear_residuals()?;
        }
        let busy: Vec<f64> = self.reports.iter().map(|r| r.as_ref().map_or(0.0, |r| r.seconds)).collect();
        let kernels = self.reports.iter().map(|r| r.as_ref()?.kernels).collect();
        // What a device that was lost over the update leaves to do comes after it was told of. Times in which this
        // process mostly stood still say nothing.
        let stopped = (self.fleet.stood_still() - stood_still).as_secs_f64() > 0.5 * begin.elapsed().as_secs_f64();
        let resplit = match self.is_settled() && !stopped {
            true => self.learn(&rows, &busy, phases, applied)?,
            false => None,
        };
        Ok(Some(StepReport { statistics, accepted, outcome, rows, busy, kernels, phases, resplit }))
    }

    /// Has the gradients of all rows computed, and each bucket's sum sent to where it is updated; `false` when a device
    /// was lost over it.
    fn gradients(&mut self, input: &StepInput<'_>, rows: &[usize]) -> Result<bool> {
        // The device that does all alone needs no detour over the host: its sums are where the update reads them.
        let stream = self.planner.plan().exchanges(rows);
        let (ticket, mut computing) = self.begin();
        for (device, shard) in shards(input.batch, input.key, input.weight, rows) {
            self.fleet.send(device, ticket, Job::Gradients { shard, stream });
            computing.push(device);
        }
        self.reducer.begin(&computing, self.fleet.pool());
        let mut summing = if stream { self.layout.buckets().len() } else { 0 };
        while !computing.is_empty() || summing > 0 {
            match self.fleet.next(ticket, &computing)? {
                (device, Some(Event::Bucket { bucket, values })) => {
                    for bucket in self.reducer.add(device, bucket, values, self.fleet.pool()) {
                        let (owner, values) = (self.planner.plan().owner(bucket), self.reducer.sum_of(bucket));
                        self.fleet.send(owner, ticket, Job::TakeSum { bucket, values });
                        summing -= 1;
                    }
                }
                (device, Some(Event::Answer(Answer::Gradients(report)))) => {
                    self.reports[device] = Some(report);
                    computing.retain(|&other| other != device);
                }
                (_, None) => return Ok(false),
                _ => {}
            }
        }
        self.waiting = computing;
        Ok(true)
    }

    /// Before devices are asked for reports: a ticket for that, and an empty list of those that owe one.
    fn begin(&mut self) -> (u64, Vec<usize>) {
        self.reports.clear();
        self.reports.resize(self.fleet.len(), None);
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.clear();
        (self.fleet.ticket(), waiting)
    }

    /// Updates the weights, and passes each bucket on to the devices that need it as soon as it is updated.
    fn update(&mut self, update: &Update) -> Result<NormOutcome> {
        let lead = self.lead();
        let mut followers = std::mem::take(&mut self.waiting);
        followers.clear();
        for device in 0..self.fleet.len() {
            let Some(present) = self.fleet.get_mut(device) else { continue };
            if !self.planner.follows(device) {
                present.behind = true;
            } else if device != lead {
                followers.push(device);
            }
        }
        for values in self.broadcasting.drain(..) {
            if let Ok(values) = Arc::try_unwrap(values) {
                self.fleet.pool().give(values);
            }
        }
        let ticket = self.fleet.ticket();
        self.fleet.send(lead, ticket, Job::Update { update: *update, stream: !followers.is_empty() });
        let outcome = loop {
            match self.fleet.next(ticket, &[lead])? {
                (_, Some(Event::Bucket { bucket, values })) => {
                    let values = Arc::new(values);
                    for &device in &followers {
                        let buffer = Buffer::Parameter(bucket);
                        self.fleet.send(device, ticket, Job::Write { buffer, values: values.clone() });
                    }
                    self.broadcasting.push(values);
                }
                // It hands out every bucket before it says this.
                (_, Some(Event::Answer(Answer::Update(outcome)))) => break outcome,
                (device, None) if device == lead => return Err(Error::StateLost),
                _ => {}
            }
        };
        self.waiting = followers;
        Ok(outcome)
    }

    /// Σ weight·statistic of `batch`, forward only; `None` when a device was lost over it: then the same is to be asked
    /// again, of the others.
    ///
    /// # Errors
    /// When no device is left.
    pub(crate) fn evaluate(&mut self, batch: &Arc<Batch>, key: StepKey, weight: f64) -> Result<Option<Vec<f64>>> {
        self.settle()?;
        let rows = self.planner.rows(batch.len());
        let (ticket, mut computing) = self.begin();
        for (device, shard) in shards(batch, key, weight, &rows) {
            self.fleet.send(device, ticket, Job::Evaluate { shard });
            computing.push(device);
        }
        while !computing.is_empty() {
            match self.fleet.next(ticket, &computing)? {
                (device, Some(Event::Answer(Answer::Evaluate(report)))) => {
                    self.reports[device] = Some(report);
                    computing.retain(|&other| other != device);
                }
                (_, None) => return Ok(None),
                _ => {}
            }
        }
        self.waiting = computing;
        Ok(Some(summed(&self.reports)))
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

/// Contiguous ranges of so many `rows` of a batch, by device, without empty ones.
fn shards(batch: &Arc<Batch>, key: StepKey, weight: f64, rows: &[usize]) -> impl Iterator<Item = (usize, Shard)> {
    let mut start = 0;
    let shard = move |(device, &count): (usize, &usize)| {
        let rows = start..start + count;
        start += count;
        (count > 0).then(|| (device, Shard { batch: batch.clone(), rows, key, weight, exact: false }))
    };
    rows.iter().enumerate().filter_map(shard)
}
