//! The loop over epochs and steps.

use std::sync::Arc;

use super::{FitReport, PREFETCH, Trainer};
use crate::data::{Batch, Dataset, Loader, Sampler};
use crate::error::{Error, Result};
use crate::trace;
use crate::train::record::{Cause, EpochRecord, Flow, Observer, Progress, RollBack, Unapplied};
use crate::train::resumable::untrained;
use crate::train::spike::OnLossSpike;
use crate::train::worker::StepKey;

const NO_SNAPSHOT: &str = "the device with the optimizer's state was lost, and there is no snapshot to go back to";

/// How a part of a training ended.
enum Leg {
    Over { stopped: bool },
    LeadLost,
    Spike { step: u64, loss: f64 },
}

impl Trainer {
    /// Trains to the end of the last epoch, from where the trainer stands.
    ///
    /// # Errors
    /// When no device is left, too many gradients in a row were not finite or all were, nothing counts in a whole epoch, the data
    /// cannot be read, or the observer fails.
    pub fn fit(
        &mut self,
        train: &Arc<dyn Dataset>,
        validation: Option<&Arc<dyn Dataset>>,
        observer: &mut dyn Observer,
    ) -> Result<FitReport> {
        self.can_train_on(train.as_ref())?;
        validation.map_or(Ok(()), |data| self.task.check(data.as_ref())).map_err(|error| match error {
            Error::Invalid { name, message } => Error::invalid("data.validation", format!("{name}: {message}")),
            other => other,
        })?;
        let sampler = self.sampler(train.as_ref())?;
        let mut last = None;
        loop {
            let outcome = self.fit_from_here(train, validation, &sampler, observer, &mut last);
            self.announce_changes(observer)?;
            match outcome? {
                Leg::Over { stopped: false } if self.position.applied == 0 => {
                    return Err(Error::Training(untrained(self.position.step)));
                }
                Leg::Over { stopped } => return Ok(FitReport { last, steps: self.position.step, stopped }),
                Leg::LeadLost => self.roll_back(observer)?,
                Leg::Spike { step, loss } => self.go_back_from_spike(step, loss, observer)?,
            }
        }
    }

    /// Trains until the end or a stop, or until training has to go back to a snapshot.
    fn fit_from_here(
        &mut self,
        train: &Arc<dyn Dataset>,
        validation: Option<&Arc<dyn Dataset>>,
        sampler: &Sampler,
        observer: &mut dyn Observer,
        last: &mut Option<EpochRecord>,
    ) -> Result<Leg> {
        let steps_per_epoch = sampler.steps_per_epoch() as u64;
        // Counted from the position in epochs: where a run goes on with another number of samples, its steps so far are not
        // those of its epochs now.
        let done_in_epoch = self.position.step_in_epoch.min(steps_per_epoch);
        let epochs = self.options.epochs.saturating_sub(self.position.epoch);
        let remaining = steps_per_epoch.saturating_mul(epochs).saturating_sub(done_in_epoch);
        let total = self.position.step.saturating_add(remaining);
        if self.fallback.is_none() && self.needs_snapshots() {
            let snapshot = self.snapshot();
            self.fallback = self.unless_lead_lost(snapshot)?;
            if self.fallback.is_none() {
                return Ok(Leg::LeadLost);
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
                let Some(record) = self.step(&batch, steps_per_epoch, total)? else { return Ok(Leg::LeadLost) };
                let rolls_back = self.options.loss_spike.action == OnLossSpike::RollBack;
                if rolls_back && record.unapplied == Some(Unapplied::LossSpike) {
                    return Ok(Leg::Spike { step: record.step, loss: record.loss });
                }
                let looked_after = self.look_after(&batch);
                if self.unless_lead_lost(looked_after)?.is_none() {
                    return Ok(Leg::LeadLost);
                }
                self.announce_changes(observer)?;
                let Some(said) = self.tell(observer, &Progress::Step(&record))? else { return Ok(Leg::LeadLost) };
                flow = said;
                self.check_finite(&record)?;
            }
            // A run that goes on from a snapshot of an epoch's last step has only this to do for it.
            if self.position.step_in_epoch >= steps_per_epoch {
                let finished = self.finish_epoch(validation);
                let Some(epoch) = self.unless_lead_lost(finished)? else { return Ok(Leg::LeadLost) };
                self.announce_changes(observer)?;
                match self.tell(observer, &Progress::Epoch(&epoch))? {
                    Some(Flow::Continue) => {}
                    Some(Flow::Stop) => flow = Flow::Stop,
                    None => return Ok(Leg::LeadLost),
                }
                *last = Some(epoch);
            }
            if flow == Flow::Stop {
                return Ok(Leg::Over { stopped: true });
            }
        }
        Ok(Leg::Over { stopped: false })
    }

    /// Tells the observer; `None` when it lost the lead over it (in reading a snapshot, say), which is not its fault.
    fn tell(&mut self, observer: &mut dyn Observer, progress: &Progress<'_>) -> Result<Option<Flow>> {
        match observer.observe(progress, self) {
            Ok(Flow::Stop) => Ok(Some(Flow::Stop)),
            said => self.unless_lead_lost(said),
        }
    }

    /// `outcome`, or `None` when the lead was lost over it. When no device is left, the outcome's own error says why.
    fn unless_lead_lost<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match self.coordinator.state_lost() {
            Ok(true) => Ok(None),
            Ok(false) => outcome.map(Some),
            Err(none_left) => outcome.and(Err(none_left)),
        }
    }

    /// Whether training may have to go back to one.
    fn needs_snapshots(&self) -> bool {
        self.coordinator.alive().len() > 1 || self.options.loss_spike.action == OnLossSpike::RollBack
    }

    /// What several devices need now and then: comparisons of their weights and results, a snapshot to go back to.
    fn look_after(&mut self, batch: &Arc<Batch>) -> Result<()> {
        let due = |every: u64| every > 0 && self.position.step.is_multiple_of(every);
        let several = self.coordinator.alive().len() > 1;
        let snapshot = due(self.options.snapshot_every) && self.needs_snapshots();
        if several && due(self.options.verify_weights_every) {
            self.coordinator.verify_weights()?;
        }
        if several && due(self.options.cross_check_every) {
            let key = StepKey { seed: self.options.seed, step: self.position.step };
            self.coordinator.cross_check(batch, key)?;
        }
        if snapshot {
            self.fallback = Some(self.snapshot()?);
        }
        Ok(())
    }

    fn finish_epoch(&mut self, validation: Option<&Arc<dyn Dataset>>) -> Result<EpochRecord> {
        if self.position.nothing_counted() {
            let (epoch, steps) = (self.position.epoch + 1, self.position.step_in_epoch);
            return Err(Error::Training(format!(
                "no target counts in any of the {steps} steps of epoch {epoch}: all are ignored, or weigh nothing. There is \
                 nothing to learn; check the loss's ignore_index and class_weights, and the samples' weights"
            )));
        }
        let validation = validation.map(|data| self.validate(data)).transpose()?;
        let done = self.position.finish_epoch();
        let loss = validation.as_ref().unwrap_or(&done.tally).loss();
        self.position.plateau.observe(&self.options.schedule, loss);
        Ok(EpochRecord {
            epoch: done.epoch,
            epochs: self.options.epochs,
            steps: self.position.step,
            skipped: done.skipped,
            samples_per_second: done.samples as f64 / done.seconds.max(f64::MIN_POSITIVE),
            seconds: done.seconds,
            train: done.tally,
            validation,
        })
    }

    fn announce_changes(&mut self, observer: &mut dyn Observer) -> Result<()> {
        for loss in self.coordinator.take_losses() {
            observer.observe(&Progress::Lost(&loss), self)?;
        }
        for label in self.coordinator.take_joined() {
            observer.observe(&Progress::Rejoined(&label), self)?;
        }
        for idle in self.coordinator.take_idle() {
            observer.observe(&Progress::Idle(&idle), self)?;
        }
        for handover in self.coordinator.take_handovers() {
            observer.observe(&Progress::Led(&handover), self)?;
        }
        for label in self.coordinator.take_employed() {
            observer.observe(&Progress::Employed(&label), self)?;
        }
        Ok(())
    }

    /// After the loss of the lead: back to the last snapshot, on the devices that are left.
    fn roll_back(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(snapshot) = self.fallback.take() else {
            // Before the first step there is no state to be lost.
            return match self.position.step {
                0 => {
                    self.coordinator.accept_fresh_state()?;
                    let weights = self.weights_of(self.coordinator.lead())?;
                    self.start_average(&weights)
                }
                _ => Err(Error::Training(NO_SNAPSHOT.into())),
            };
        };
        self.restore_values(&snapshot)?;
        self.fallback = Some(snapshot);
        let back = RollBack { step: self.position.step, cause: Cause::LeadLost };
        self.tell(observer, &Progress::RolledBack(back)).map(drop)
    }

    /// After a loss spike: back to the last snapshot, and on without the batches between it and the spike.
    fn go_back_from_spike(&mut self, step: u64, loss: f64, observer: &mut dyn Observer) -> Result<()> {
        let mut snapshot = self.fallback.take().ok_or_else(|| Error::Training(NO_SNAPSHOT.into()))?;
        let gone_back = self.go_back_without(&mut snapshot, step);
        self.fallback = Some(snapshot);
        gone_back?;
        let back = RollBack { step: self.position.step, cause: Cause::LossSpike { step, loss } };
        self.tell(observer, &Progress::RolledBack(back)).map(drop)
    }
}
