//! Where a run stands: its place in epochs and steps, and what it has seen of the epoch.

use serde::{Deserialize, Serialize};

use super::record::Tally;
use super::spike::LossWindow;
use crate::optim::Plateau;

/// Where a run stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs finished.
    pub epoch: u64,
    /// Steps finished in this epoch.
    pub step_in_epoch: u64,
    /// Steps finished over the whole run.
    pub step: u64,
    /// Updates applied: steps without those that were skipped.
    pub applied: u64,
    /// Updates skipped in this epoch.
    #[serde(default)]
    pub skipped: u64,
    /// Updates skipped in a row, up to now.
    pub skipped_in_a_row: u64,
    /// Sums over this epoch's steps so far.
    pub tally: Tally,
    /// Samples seen in this epoch.
    pub samples: u64,
    /// Seconds of this epoch's steps.
    pub seconds: f64,
    /// The recent losses, by which a spike is known.
    #[serde(default)]
    pub losses: LossWindow,
    /// Steps whose batches are left out, since they led to a loss spike: first and last of each range.
    #[serde(default)]
    pub left_out: Vec<[u64; 2]>,
    /// What a schedule that goes by the loss has seen of it.
    #[serde(default)]
    pub plateau: Plateau,
}

/// What an epoch amounted to.
pub(super) struct EpochDone {
    pub(super) epoch: u64,
    pub(super) tally: Tally,
    pub(super) skipped: u64,
    pub(super) samples: u64,
    pub(super) seconds: f64,
}

/// The largest number of steps that a run may have: JSON's readers have whole numbers up to it.
const MOST_STEPS: u64 = 1 << 53;

impl Position {
    /// Checks that this is a place that a run of `step` steps can be in.
    pub(super) fn check(&self, step: u64) -> std::result::Result<(), String> {
        if self.step != step {
            return Err(format!("it is one of step {}", self.step));
        }
        if step > MOST_STEPS {
            return Err(format!("a run has {MOST_STEPS} steps at most"));
        }
        let steps = [
            ("step_in_epoch", self.step_in_epoch),
            ("epoch", self.epoch),
            ("applied", self.applied),
            ("skipped", self.skipped),
            ("skipped_in_a_row", self.skipped_in_a_row),
            ("losses.count", self.losses.count()),
            ("plateau.reductions", self.plateau.reductions.into()),
            ("plateau.waited", self.plateau.waited()),
        ];
        if let Some((name, value)) = steps.into_iter().find(|(_, value)| *value > step) {
            return Err(format!("{name} is {value}"));
        }
        // Each of them takes a step.
        if self.epoch > step - self.step_in_epoch {
            return Err(format!("epoch is {}, of which step_in_epoch is {}", self.epoch, self.step_in_epoch));
        }
        if self.samples > MOST_STEPS || self.seconds < 0.0 {
            return Err(format!("samples is {}, seconds is {}", self.samples, self.seconds));
        }
        Ok(())
    }

    /// Whether the batch of the coming step is left out.
    pub(super) fn leaves_out(&self) -> bool {
        self.left_out.iter().any(|[first, last]| (*first..=*last).contains(&self.step))
    }

    /// Whether the epoch so far had steps, of which none counted for anything and none was left out for its loss.
    pub(super) fn nothing_counted(&self) -> bool {
        let first = self.step - self.step_in_epoch.min(self.step);
        let left_out = self.left_out.iter().any(|[from, to]| *from < self.step && *to >= first);
        self.step_in_epoch > 0 && self.tally.weight == 0.0 && !left_out
    }

    pub(super) fn advance(&mut self, applied: bool, tally: &Tally, samples: usize, seconds: f64) {
        self.step += 1;
        self.step_in_epoch += 1;
        self.applied += u64::from(applied);
        self.skipped += u64::from(!applied);
        if tally.weight > 0.0 {
            self.skipped_in_a_row = if applied { 0 } else { self.skipped_in_a_row + 1 };
        }
        self.tally.add(&tally.sums, tally.weight, tally.metric_weight);
        self.samples += samples as u64;
        self.seconds += seconds;
    }

    pub(super) fn finish_epoch(&mut self) -> EpochDone {
        let done = EpochDone {
            epoch: self.epoch,
            tally: std::mem::take(&mut self.tally),
            skipped: std::mem::take(&mut self.skipped),
            samples: std::mem::take(&mut self.samples),
            seconds: std::mem::take(&mut self.seconds),
        };
        self.epoch += 1;
        self.step_in_epoch = 0;
        done
    }
}
