//! Where a run stands, and what a checkpoint holds of it: weights, optimizer state, position in the epoch, split. With them
//! a run goes on bit by bit as if it had not stopped (on the same adapters, with a split that does not adapt).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::average::saved_weights;
use super::record::Tally;
use super::resumable::{check_settings, check_tensors};
use super::spike::LossWindow;
use super::trainer::Trainer;
use crate::checkpoint::Snapshot;
use crate::error::{Error, Result};
use crate::optim::{AVERAGE, Plateau};
use crate::plan::Buffer;
use crate::tensor::{HostTensor, Shape};

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
    /// The losses of late, by which a spike is known.
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
    fn check(&self, step: u64) -> std::result::Result<(), String> {
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

/// The JSON part of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) position: Position,
    pub(super) seed: u64,
    /// Samples of an update; the position counts in them.
    pub(super) window: usize,
    /// Whether the order of samples is the seed's. Checkpoints from before there was a choice do not say: it was.
    #[serde(default = "yes")]
    pub(super) shuffle: bool,
    /// The optimizer's name in run files. Checkpoints from before it was noted do not say.
    #[serde(default)]
    pub(super) optimizer: Option<String>,
    /// Rows of a full batch, by device.
    split: Vec<usize>,
    /// The devices' names; of older checkpoints none.
    #[serde(default)]
    devices: Vec<String>,
    /// The device that applies updates. Checkpoints from before it could change do not say: it was the first.
    #[serde(default)]
    lead: usize,
}

fn yes() -> bool {
    true
}

impl Trainer {
    /// Everything that a run needs to go on from here.
    ///
    /// # Errors
    /// When the lead fails while it is read, or has failed and training has not gone back to a snapshot yet.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        if self.coordinator.state_lost()? {
            let message = "the optimizer's state was lost with its device; training goes back to a snapshot first";
            return Err(Error::Training(message.into()));
        }
        let lead = self.coordinator.lead();
        let weights = self.weights_of(lead)?;
        let mut optimizer = Vec::new();
        for (moment, kind) in self.options.optimizer.moments().iter().enumerate() {
            let values =
                self.named(|trainer, bucket| trainer.coordinator.read(lead, Buffer::State { moment, bucket }))?;
            optimizer.extend(self.tensors(values, &format!(".{kind}"))?);
        }
        optimizer.extend(self.residuals()?);
        if let Some(moment) = self.options.update_rule().average() {
            let average = self.average(lead, moment, &weights)?;
            optimizer.extend(self.tensors(average, &format!(".{AVERAGE}"))?);
        }
        let weights = self.tensors(weights, "")?;
        let state = State {
            position: self.position.clone(),
            seed: self.options.seed,
            window: self.options.window(),
            shuffle: self.options.shuffle,
            optimizer: Some(self.options.optimizer.name().to_owned()),
            split: self.coordinator.splitter().full().to_vec(),
            devices: self.coordinator.labels().to_vec(),
            lead,
        };
        Ok(Snapshot { step: self.position.step, weights, optimizer, state: to_value(&state)? })
    }

    /// Values of parameters as tensors under the parameter's name and `suffix`.
    pub(super) fn tensors(&self, values: Vec<(String, Vec<f32>)>, suffix: &str) -> Result<Vec<(String, HostTensor)>> {
        let shapes: HashMap<String, Shape> = self.shapes().into_iter().collect();
        let named = |(name, values): (String, Vec<f32>)| {
            let shape = shapes.get(&name)?.clone();
            Some(HostTensor::f32(shape, values).map(|tensor| (name + suffix, tensor)))
        };
        values.into_iter().filter_map(named).collect()
    }

    /// Puts the weights of `snapshot` on all devices: their moving average where it has one, unless they themselves are wanted
    /// (`raw`). Nothing else changes.
    ///
    /// # Errors
    /// When a parameter has no value of its shape.
    pub fn load_weights(&mut self, snapshot: &Snapshot, raw: bool) -> Result<()> {
        self.set_weights(&saved_weights(snapshot, raw)?)
    }

    /// Goes on from `snapshot`, which a trainer of the same task made.
    ///
    /// # Errors
    /// When the snapshot is of another model, optimizer, seed, batch size or order of samples: then nothing has changed.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        let state = parse(snapshot)?;
        check_settings(&state, &self.options)?;
        check_tensors(snapshot, &self.shapes(), &self.options)?;
        let labels = self.coordinator.labels();
        // Checkpoints from before they named their devices have as many of them as rows of the split.
        let same = if state.devices.is_empty() { state.split.len() == labels.len() } else { state.devices == labels };
        if same {
            self.coordinator.restore_split(state.split)?;
            self.coordinator.hand_over(state.lead)?;
        } else {
            log::warn!(
                "the checkpoint was made on {}, this run has {}: the split starts anew, and rounding will differ from an \
                 uninterrupted run",
                if state.devices.is_empty() {
                    format!("{} devices", state.split.len())
                } else {
                    state.devices.join(" + ")
                },
                labels.join(" + ")
            );
        }
        self.restore_values(snapshot)?;
        if self.fallback.is_some() {
            self.fallback = Some(snapshot.clone());
        }
        Ok(())
    }

    /// Weights, optimizer state and position of `snapshot`.
    pub(super) fn restore_values(&mut self, snapshot: &Snapshot) -> Result<()> {
        let state = parse(snapshot)?;
        self.coordinator.accept_fresh_state()?;
        self.set_weights(&values(&snapshot.weights, "")?)?;
        for (moment, kind) in self.options.update_rule().moments().iter().enumerate() {
            let of = values(&snapshot.optimizer, &format!(".{kind}"))?;
            self.write_named(|bucket| Buffer::State { moment, bucket }, &of)?;
        }
        self.restore_residuals(snapshot, state.split.len())?;
        self.position = state.position;
        Ok(())
    }

    /// Goes back to `snapshot`, without the batches from there to that of step `last`; the snapshot then says so too.
    pub(super) fn go_back_without(&mut self, snapshot: &mut Snapshot, last: u64) -> Result<()> {
        let mut state = parse(snapshot)?;
        state.position.left_out.push([state.position.step, last]);
        snapshot.state = to_value(&state)?;
        self.restore_values(snapshot)
    }

    /// A number that tells the bits of device `device`'s weights (FNV-1a, 64 bits): equal on all devices after every step.
    ///
    /// # Errors
    /// When that device fails.
    pub fn weights_hash(&mut self, device: usize) -> Result<u64> {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let weights = self.weights_of(device)?;
        let bytes = weights.iter().flat_map(|(_, values)| values).flat_map(|value| value.to_bits().to_le_bytes());
        Ok(bytes.fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// Names and shapes of the parameters.
    pub fn shapes(&self) -> Vec<(String, Shape)> {
        self.coordinator.layout().parameters().iter().map(|p| (p.name.clone(), p.shape.clone())).collect()
    }
}

fn to_value(state: &State) -> Result<Value> {
    serde_json::to_value(state).map_err(|e| Error::Training(format!("the run's state: {e}")))
}

pub(super) fn parse(snapshot: &Snapshot) -> Result<State> {
    let state: State = serde_json::from_value(snapshot.state.clone())
        .map_err(|e| Error::Training(format!("the checkpoint's state is not one of this program: {e}")))?;
    state.position.check(snapshot.step).map_err(|what| {
        let message = format!("its position is impossible: {what}; it was damaged or edited, take an earlier one");
        Error::checkpoint(format!("of step {}", snapshot.step), message)
    })?;
    Ok(state)
}

/// The tensors whose names end in `suffix`, by what is before it.
pub(super) fn values(tensors: &[(String, HostTensor)], suffix: &str) -> Result<Vec<(String, Vec<f32>)>> {
    tensors
        .iter()
        .filter_map(|(name, tensor)| Some((name.strip_suffix(suffix)?, tensor)))
        .map(|(name, tensor)| {
            let values =
                tensor.as_f32().ok_or_else(|| Error::shape(format!("tensor {name}"), "expected f32, got u32"))?;
            Ok((name.to_owned(), values.to_vec()))
        })
        .collect()
}
