//! The loop over epochs and steps.

use std::sync::Arc;

use super::{FitReport, PREFETCH, Trainer};
use crate::data::{Batch, Dataset, Loader, Sampler};
use crate::error::{Error, Result};
use crate::fleet::{Change, StepKey};
use crate::trace;
use crate::train::questions::questions;
use crate::train::record::{Cause, EpochRecord, Flow, Observer, Progress, RollBack, Unapplied};
use crate::train::resumable::untrained;
use crate::train::spike::OnLossSpike;

const NO_SNAPSHOT: &str = "the device with the optimizer's state was lost, and there is no snapshot to go back to";

/// How a part of a training ended.
enum Leg {
    Over { stopped: bool },
    Spike { step: u64, loss: f64 },
}

impl Trainer {
    /// Trains to the end of the last epoch, from where the trainer stands.
    ///
    /// # Errors
    /// When no device is left, too many gradients in a row were not finite or all were, nothing counts in a whole
    /// epoch, the data cannot be read, or the observer fails.
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
            let back = match outcome {
                Ok(Leg::Over { stopped: false }) if self.position.applied == 0 => {
                    return Err(Error::Training(untrained(self.position.step)));
                }
                Ok(Leg::Over { stopped }) => return Ok(FitReport { last, steps: self.position.step, stopped }),
                Ok(Leg::Spike { step, loss }) => self.go_back_from_spike(step, loss, observer),
                Err(Error::StateLost) => self.roll_back(observer),
                Err(error) => return Err(error),
            };
            match back {
                // Lost once more on the way back: the next step says so.
                Err(Error::StateLost) => {}
                back => back?,
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
        // Counted from the position in epochs: where a run goes on with another number of samples, its steps so far are
        // not those of its epochs now.
        let done_in_epoch = self.position.step_in_epoch.min(steps_per_epoch);
        let epochs = self.options.epochs.saturating_sub(self.position.epoch);
        let remaining = steps_per_epoch.saturating_mul(epochs).saturating_sub(done_in_epoch);
        let total = self.position.step.saturating_add(remaining);
        if self.fallback.is_none() && self.needs_snapshots() {
            let snapshot = self.snapshot();
            self.fallback = Some(self.unless_state_lost(snapshot)?);
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
                let tell = &mut |trainer: &mut Self| trainer.announce_changes(observer);
                let record = self.step(&batch, steps_per_epoch, total, tell)?;
                let rolls_back = self.options.loss_spike.action == OnLossSpike::RollBack;
                if rolls_back && record.unapplied == Some(Unapplied::LossSpike) {
                    return Ok(Leg::Spike { step: record.step, loss: record.loss });
                }
                let looked_after = self.look_after(&batch, observer);
                self.unless_state_lost(looked_after)?;
                self.announce_changes(observer)?;
                flow = self.tell(observer, &Progress::Step(&record))?;
                self.check_finite(&record)?;
            }
            // A run that goes on from a snapshot of an epoch's last step has only this to do for it.
            if self.position.step_in_epoch >= steps_per_epoch {
                let finished = self.finish_epoch(validation, observer);
                let epoch = self.unless_state_lost(finished)?;
                self.announce_changes(observer)?;
                if self.tell(observer, &Progress::Epoch(&epoch))? == Flow::Stop {
                    flow = Flow::Stop;
                }
                *last = Some(epoch);
            }
            if flow == Flow::Stop {
                return Ok(Leg::Over { stopped: true });
            }
        }
        Ok(Leg::Over { stopped: false })
    }

    /// Tells the observer. That it lost the optimizer's state over it (in reading a snapshot, say) is not its fault.
    fn tell(&mut self, observer: &mut dyn Observer, progress: &Progress<'_>) -> Result<Flow> {
        match observer.observe(progress, self) {
            Ok(Flow::Stop) => Ok(Flow::Stop),
            said => self.unless_state_lost(said),
        }
    }

    /// `outcome`, unless the optimizer's state was lost over it. When no device is left, the outcome's own error says
    /// why.
    fn unless_state_lost<T>(&self, outcome: Result<T>) -> Result<T> {
        if !self.coordinator.alive().contains(&true) {
            return outcome.and_then(|_| Err(Error::Training("no device is left".into())));
        }
        self.coordinator.has_state().and(outcome)
    }

    /// Whether training may have to go back to one.
    fn needs_snapshots(&self) -> bool {
        self.coordinator.devices() > 1 || self.options.loss_spike.action == OnLossSpike::RollBack
    }

    /// What several devices need now and then: comparisons of their weights and results, a snapshot to go back to.
    fn look_after(&mut self, batch: &Arc<Batch>, observer: &mut dyn Observer) -> Result<()> {
        let step = self.position.step;
        let due = |every: u64| every > 0 && step.is_multiple_of(every);
        let several = self.coordinator.devices() > 1;
        let snapshot = due(self.options.snapshot_every) && self.needs_snapshots();
        if several && due(self.options.verify_weights_every) {
            self.coordinator.verify_weights()?;
            self.announce_changes(observer)?;
        }
        if several && due(self.options.cross_check_every) {
            let key = StepKey { seed: self.options.seed, step };
            self.coordinator.cross_check(&questions(&self.task, batch)?, key)?;
            self.announce_changes(observer)?;
        }
        if snapshot {
            self.fallback = Some(self.snapshot()?);
        }
        Ok(())
    }

    fn finish_epoch(
        &mut self,
        validation: Option<&Arc<dyn Dataset>>,
        observer: &mut dyn Observer,
    ) -> Result<EpochRecord> {
        if self.position.nothing_counted() {
            let (epoch, steps) = (self.position.epoch + 1, self.position.step_in_epoch);
            return Err(Error::Training(format!(
                "no target counts in any of the {steps} steps of epoch {epoch}: all are ignored, or weigh nothing. There is \
                 nothing to learn; check the loss's ignore_index and class_weights, and the samples' weights"
            )));
        }
        let tell = &mut |trainer: &mut Self| trainer.announce_changes(observer);
        let validation = validation.map(|data| self.validate(data, tell)).transpose()?;
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
        for change in self.coordinator.take_changes() {
            let progress = match &change {
                Change::Lost(lost) => Progress::Lost(lost),
                Change::Rejoined(label) => Progress::Rejoined(label),
                Change::Idle(idle) => Progress::Idle(idle),
                Change::Employed(label) => Progress::Employed(label),
                Change::Led(handover) => Progress::Led(handover),
            };
            observer.observe(&progress, self)?;
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
        let restored = self.restore_values(&snapshot);
        self.fallback = Some(snapshot);
        restored?;
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
