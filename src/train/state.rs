//! What a checkpoint holds of a run: weights, optimizer state, position in the epoch, split. With them a run goes on
//! bit by bit as if it had not stopped (on the same adapters, with a split that does not adapt).

use super::average::saved_weights;
use super::resumable::{check_settings, check_tensors};
use super::saved::{State, parse, to_value, values};
use super::trainer::Trainer;
use crate::checkpoint::Snapshot;
use crate::error::Result;
use crate::optim::AVERAGE;
use crate::plan::Buffer;
use crate::tensor::{HostTensor, Named, Shape};

impl Trainer {
    /// Everything that a run needs to go on from here.
    ///
    /// # Errors
    /// When the lead fails while it is read, or has failed and training has not gone back to a snapshot yet.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.coordinator.has_state()?;
        let lead = self.coordinator.lead();
        let weights = self.weights_of(lead)?;
        let mut optimizer = Named::default();
        for (moment, kind) in self.options.optimizer.moments().iter().enumerate() {
            let values =
                self.named(|trainer, bucket| trainer.coordinator.read(lead, Buffer::State { moment, bucket }))?;
            optimizer.extend(self.tensors(values, &format!(".{kind}"))?)?;
        }
        optimizer.extend(self.residuals()?)?;
        if let Some(moment) = self.options.update_rule().average() {
            let average = self.average(lead, moment, &weights)?;
            optimizer.extend(self.tensors(average, &format!(".{AVERAGE}"))?)?;
        }
        let weights = self.tensors(weights, "")?;
        let state = State {
            position: self.position.clone(),
            seed: self.options.seed,
            window: self.options.window(),
            shuffle: self.options.shuffle,
            optimizer: Some(self.options.optimizer.name().to_owned()),
            split: self.coordinator.split().to_vec(),
            devices: self.coordinator.labels(),
            lead,
        };
        Ok(Snapshot { step: self.position.step, weights, optimizer, state: to_value(&state)? })
    }

    /// Values of parameters as tensors under the parameter's name and `suffix`.
    pub(super) fn tensors(&self, values: Named<Vec<f32>>, suffix: &str) -> Result<Named<HostTensor>> {
        let (shapes, mut tensors) = (self.shapes(), Named::default());
        for (name, values) in values {
            let tensor = HostTensor::f32(shapes[&name].clone(), values)?;
            tensors.extend([(name + suffix, tensor)])?;
        }
        Ok(tensors)
    }

    /// Puts the weights of `snapshot` on all devices: their moving average where it has one, unless they themselves are
    /// wanted (`raw`). Nothing else changes.
    ///
    /// # Errors
    /// When a parameter has no value of its shape.
    pub fn load_weights(&mut self, snapshot: &Snapshot, raw: bool) -> Result<()> {
        self.set_weights(&saved_weights(snapshot, raw)?)
    }

    /// Goes on from `snapshot`, which a trainer of the same task made.
    ///
    /// # Errors
    /// When the snapshot is of another model, optimizer, seed, batch size or order of samples: then nothing has
    /// changed.
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

    /// A number that tells the bits of device `device`'s weights (FNV-1a, 64 bits): equal on all devices after every
    /// step.
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
    pub fn shapes(&self) -> Named<Shape> {
        let parameters = self.coordinator.layout().parameters().iter();
        Named::of(parameters.map(|p| (&p.name, p.shape.clone()))).expect("no two parameters have one name")
    }
}
