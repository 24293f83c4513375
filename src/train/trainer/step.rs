//! One optimizer step.

use std::sync::Arc;
use std::time::Instant;

use super::{Trainer, WhenLost};
use crate::coordinator::{StepInput, StepReport};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::fleet::StepKey;
use crate::optim::At;
use crate::train::record::{StepRecord, Tally, Unapplied};

impl Trainer {
    /// One optimizer step on a batch of the caller's, for loops other than [`Trainer::fit`]; `total` is the number of
    /// steps that the schedule is laid out for. Steps count as of one epoch that does not end.
    ///
    /// # Errors
    /// As [`Trainer::fit`]. [`Error::StateLost`] when the device with the optimizer's state is lost, and until
    /// [`Trainer::restore`] has gone back to a snapshot.
    pub fn step_on(&mut self, batch: &Arc<Batch>, total: u64) -> Result<StepRecord> {
        let record = self.step(batch, total, total, &mut |_| Ok(()))?;
        self.check_finite(&record)?;
        Ok(record)
    }

    /// One optimizer step. `lost` is called when a device was lost, before its rows are computed on the others.
    pub(super) fn step(
        &mut self,
        batch: &Arc<Batch>,
        steps_per_epoch: u64,
        total: u64,
        lost: &mut WhenLost<'_>,
    ) -> Result<StepRecord> {
        let begin = Instant::now();
        let at = self.position.clone();
        let reductions = at.plateau.reductions;
        let learning_rate = self.options.schedule.rate(&At { step: at.step, total, steps_per_epoch, reductions });
        let weight = self.task.weight_sum(batch);
        let samples = batch.len();
        let policy = self.options.loss_spike;
        let limit = at.losses.limit(&policy, samples as f64 / self.options.window() as f64);
        let report = if weight > 0.0 && !at.leaves_out() {
            let update = self.options.optimizer.step(learning_rate, weight, at.applied + 1);
            let key = StepKey { seed: self.options.seed, step: at.step };
            let steps_left = total.saturating_sub(at.step + 1);
            let input = StepInput { batch, key, weight, update, loss_limit: limit, steps_left };
            loop {
                match self.coordinator.step(&input)? {
                    Some(report) => break report,
                    None => lost(self)?,
                }
            }
        } else {
            StepReport { rows: vec![0; self.coordinator.devices()], ..StepReport::default() }
        };
        let unapplied = match &report {
            _ if at.leaves_out() => Some(Unapplied::LeftOut),
            // Samples of which none counts have no mean gradient.
            _ if weight <= 0.0 => Some(Unapplied::NoWeight),
            report if !report.accepted => Some(Unapplied::LossSpike),
            report if report.outcome.applied == 0 => Some(Unapplied::NotFinite),
            _ => None,
        };
        // In the other cases there was no update that would have measured it.
        let measured = matches!(unapplied, None | Some(Unapplied::NotFinite));
        let mut tally = Tally::default();
        if weight > 0.0 && unapplied != Some(Unapplied::LeftOut) {
            tally.add(&report.statistics, weight, self.task.metric_weight_sum(batch));
        }
        self.position.advance(unapplied.is_none(), &tally, samples, begin.elapsed().as_secs_f64());
        if tally.weight > 0.0 {
            self.position.losses.add(tally.loss(), limit);
        }
        let record = StepRecord {
            step: at.step,
            epoch: at.epoch,
            step_in_epoch: at.step_in_epoch,
            steps_per_epoch,
            samples,
            loss: tally.loss(),
            accuracy: tally.accuracy(),
            learning_rate,
            gradient_norm: if measured { f64::from(report.outcome.norm) } else { f64::NAN },
            applied: unapplied.is_none(),
            unapplied,
            shards: report.rows,
            busy: report.busy,
            kernels: report.kernels,
            seconds: begin.elapsed().as_secs_f64(),
            phases: report.phases,
            resplit: report.resplit,
        };
        Ok(record)
    }

    /// Whether to go on after the step of `record`, which the observer has seen.
    pub(super) fn check_finite(&self, record: &StepRecord) -> Result<()> {
        let skipped = self.position.skipped_in_a_row;
        if record.applied || skipped < self.options.nonfinite_limit {
            return Ok(());
        }
        let why = match record.unapplied {
            Some(Unapplied::LossSpike) => "the loss was far above those before",
            _ => "the gradient was not finite",
        };
        Err(Error::Training(format!(
            "{why} in {skipped} updates in a row, up to step {}; the weights are those before them. Try \
             a smaller learning rate, or train.clip_norm",
            record.step
        )))
    }
}
