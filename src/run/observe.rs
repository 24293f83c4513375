//! The record of a training while it goes on.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::lines::{epoch_line, step_line};
use super::{LOOK_EVERY, ROLLED_BACK, RunFolder};
use crate::checkpoint::Snapshot;
use crate::error::{Error, Result};
use crate::train::{Cause, Flow, Observer, Position, Progress, StepRecord, Trainer};

impl RunFolder {
    fn event(&mut self, value: &Value) -> Result<()> {
        self.events.add(value)?;
        self.events.flush()
    }

    /// Notes an event, of these fields, of the last step taken.
    fn after_step(&mut self, trainer: &Trainer, fields: Value) -> Result<Flow> {
        let mut event = json!({ "step": trainer.position().step.saturating_sub(1) });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.event(&event)?;
        Ok(Flow::Continue)
    }

    /// Training goes back to `position` and does the same steps again. The checkpoints that it has written since stay
    /// what they are, so the record up to the newest one stays, too: a run that is stopped now goes on from there.
    pub(super) fn do_again_from(&mut self, position: &Position) -> Result<()> {
        self.recorded = self.saved_at.unwrap_or_default().max((position.step, position.epoch));
        self.cut_record()
    }

    /// Training goes back to `position`, of which this is the snapshot, and on another way. First a checkpoint of it
    /// takes the place of all later ones, so that a run that is stopped at any moment goes on from one way or the
    /// other, with its record.
    pub(super) fn go_back(&mut self, position: &Position, snapshot: Option<&Snapshot>) -> Result<()> {
        let snapshot = snapshot.ok_or_else(|| Error::Training("there is no snapshot to go back to".into()))?;
        self.look_after()?;
        self.sync()?;
        self.store.go_back(snapshot)?;
        self.recorded = (position.step, position.epoch);
        self.saved_at = Some(self.recorded);
        self.cut_record()
    }

    fn cut_record(&mut self) -> Result<()> {
        self.metrics.keep_below("step", self.recorded.0)?;
        self.epochs.keep_below("epoch", self.recorded.1)
    }

    fn step(&mut self, record: &StepRecord, trainer: &mut Trainer) -> Result<Flow> {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.look_after()?;
        }
        if record.step >= self.recorded.0 {
            self.metrics.add(&step_line(record))?;
        }
        if let Some(resplit) = &record.resplit {
            let (before, after) = (&resplit.before, &resplit.after);
            self.event(&json!({ "step": record.step, "event": "resplit", "before": before, "after": after }))?;
        }
        let done = record.step + 1;
        let stop = self.interrupted.load(Ordering::Relaxed);
        // The end of an epoch saves with its score.
        let due = self.policy.every > 0 && done.is_multiple_of(self.policy.every);
        let epoch_ends = record.step_in_epoch + 1 == record.steps_per_epoch;
        if stop || (due && !epoch_ends) {
            self.save(trainer, None)?;
        }
        Ok(if stop { Flow::Stop } else { Flow::Continue })
    }
}

impl Observer for RunFolder {
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow> {
        match progress {
            Progress::Step(record) => self.step(record, trainer),
            Progress::Epoch(record) => {
                if record.epoch >= self.recorded.1 {
                    self.epochs.add(&epoch_line(record))?;
                }
                self.save(trainer, record.score())?;
                Ok(Flow::Continue)
            }
            Progress::Lost(loss) => {
                let error = loss.error.to_string();
                self.after_step(trainer, json!({ "event": "lost", "device": loss.label, "error": error }))
            }
            Progress::Rejoined(label) => self.after_step(trainer, json!({ "event": "rejoined", "device": label })),
            Progress::Idle(idle) => {
                let (fixed, each) = idle.cost.unzip();
                let seconds = json!({ "fixed": fixed, "each": each, "finish": idle.finish });
                self.after_step(trainer, json!({ "event": "idle", "device": idle.label, "seconds": seconds }))
            }
            Progress::Employed(label) => self.after_step(trainer, json!({ "event": "employed", "device": label })),
            Progress::Led(led) => {
                let seconds = json!({ "of": led.of, "before": led.before, "expected": led.expected });
                let event = json!({ "event": "lead", "from": led.from, "to": led.to, "seconds": seconds });
                self.after_step(trainer, event)
            }
            Progress::RolledBack(back) => {
                let position = trainer.position().clone();
                match back.cause {
                    Cause::LeadLost => self.do_again_from(&position)?,
                    Cause::LossSpike { .. } => self.go_back(&position, trainer.last_snapshot())?,
                }
                let cause = match back.cause {
                    Cause::LeadLost => json!({ "kind": "lead lost" }),
                    Cause::LossSpike { step, loss } => json!({ "kind": "loss spike", "step": step, "loss": loss }),
                };
                self.event(&json!({ "step": back.step, "event": ROLLED_BACK, "cause": cause }))?;
                Ok(Flow::Continue)
            }
        }
    }
}
