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

/// The step that what happened belongs to: the last one taken.
fn last_step(trainer: &Trainer) -> u64 {
    trainer.position().step.saturating_sub(1)
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
                let step = last_step(trainer);
                let error = loss.error.to_string();
                self.event(&json!({ "step": step, "event": "lost", "device": loss.label, "error": error }))?;
                Ok(Flow::Continue)
            }
            Progress::Rejoined(label) => {
                let step = last_step(trainer);
                self.event(&json!({ "step": step, "event": "rejoined", "device": label }))?;
                Ok(Flow::Continue)
            }
            Progress::Idle(idle) => {
                let (step, device) = (last_step(trainer), &idle.label);
                let (fixed, each) = idle.cost.unzip();
                let seconds = json!({ "fixed": fixed, "each": each, "finish": idle.finish });
                self.event(&json!({ "step": step, "event": "idle", "device": device, "seconds": seconds }))?;
                Ok(Flow::Continue)
            }
            Progress::Employed(label) => {
                let step = last_step(trainer);
                self.event(&json!({ "step": step, "event": "employed", "device": label }))?;
                Ok(Flow::Continue)
            }
            Progress::Led(led) => {
                let step = last_step(trainer);
                let seconds = json!({ "of": led.of, "before": led.before, "expected": led.expected });
                let event =
                    json!({ "step": step, "event": "lead", "from": led.from, "to": led.to, "seconds": seconds });
                self.event(&event)?;
                Ok(Flow::Continue)
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
