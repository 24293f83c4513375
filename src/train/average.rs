//! The moving average of the weights: it starts as a copy of them, stands in for them in a validation, and is what
//! evaluation and prediction go by. Parameters that are not updated have themselves as their average.

use std::sync::Arc;

use super::record::Tally;
use super::saved::values;
use super::trainer::{Trainer, WhenLost};
use crate::checkpoint::Snapshot;
use crate::data::Dataset;
use crate::error::Result;
use crate::optim::AVERAGE;
use crate::plan::Buffer;
use crate::tensor::Named;

/// The weights in a checkpoint: their moving average where there is one, unless they themselves are wanted (`raw`).
///
/// # Errors
/// When one is not a float.
pub fn saved_weights(snapshot: &Snapshot, raw: bool) -> Result<Named<Vec<f32>>> {
    let average = if raw { Named::default() } else { values(&snapshot.optimizer, &format!(".{AVERAGE}"))? };
    if average.is_empty() { values(&snapshot.weights, "") } else { Ok(average) }
}

impl Trainer {
    /// Starts the moving average, where there is one, with `weights`.
    pub(super) fn start_average(&mut self, weights: &Named<Vec<f32>>) -> Result<()> {
        match self.options.update_rule().average() {
            Some(moment) => self.write_named(|bucket| Buffer::State { moment, bucket }, weights),
            None => Ok(()),
        }
    }

    /// The moving average, which is the optimizer's moment `moment`, as it is on the device `lead`, whose weights are
    /// `weights`.
    pub(super) fn average(&mut self, lead: usize, moment: usize, weights: &Named<Vec<f32>>) -> Result<Named<Vec<f32>>> {
        let rule = self.options.update_rule();
        let mut average =
            self.named(|trainer, bucket| trainer.coordinator.read(lead, Buffer::State { moment, bucket }))?;
        for placed in self.coordinator.layout().parameters().iter().filter(|p| rule.treatment(p).is_none()) {
            if let (Some(average), Some(weights)) = (average.get_mut(&placed.name), weights.get(&placed.name)) {
                average.clone_from(weights);
            }
        }
        Ok(average)
    }

    /// Loss and metrics over held-out data with the moving average of the weights, where there is one. The weights are
    /// what they were afterwards, to the bit. `lost` is called when a device was lost over it.
    pub(super) fn validate(&mut self, data: &Arc<dyn Dataset>, lost: &mut WhenLost<'_>) -> Result<Tally> {
        let Some(moment) = self.options.update_rule().average() else { return self.evaluate_checked(data, lost) };
        let lead = self.coordinator.lead();
        let weights = self.weights_of(lead)?;
        let average = self.average(lead, moment, &weights)?;
        self.write_named(Buffer::Parameter, &average)?;
        let tally = self.evaluate_checked(data, lost);
        self.write_named(Buffer::Parameter, &weights)?;
        tally
    }
}
