//! The record of a training while it goes on.

use std::io::Write;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::super::record::{Cause, Flow, Observer, Progress, StepRecord};
use super::super::trainer::Trainer;
use super::lines::{epoch_line, kept_lines, step_line};
use super::{EPOCHS, EVENTS, METRICS, RunFolder};
use crate::error::{Error, Result};

impl RunFolder {
    fn event(&mut self, value: &Value) -> Result<()> {
        writeln!(self.events, "{value}").and_then(|()| self.events.flush()).map_err(Error::io(self.path.join(EVENTS)))
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

    fn step(&mut self, record: &StepRecord, trainer: &mut Trainer) -> Result<Flow> {
        writeln!(self.metrics, "{}", step_line(record)).map_err(Error::io(self.path.join(METRICS)))?;
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
                writeln!(self.epochs, "{}", epoch_line(record)).map_err(Error::io(self.path.join(EPOCHS)))?;
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
                self.flush()?;
                // In place, since the open handles append to these files. What happened stays in the events.
                for (file, key, end) in Self::records(trainer.position()).into_iter().filter(|r| r.0 != EVENTS) {
                    let file = self.path.join(file);
                    if let Some(kept) = kept_lines(&file, key, end)? {
                        std::fs::write(&file, kept).map_err(Error::io(&file))?;
                    }
                }
                let cause = match back.cause {
                    Cause::LeadLost => json!({ "kind": "lead lost" }),
                    Cause::LossSpike { step, loss } => json!({ "kind": "loss spike", "step": step, "loss": loss }),
                };
                self.event(&json!({ "step": back.step, "event": "rolled back", "cause": cause }))?;
                Ok(Flow::Continue)
            }
        }
    }
}
