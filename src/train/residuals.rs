//! What compression holds back on each device, as part of a run's state: with it a run goes on bit by bit.

use super::saved::values;
use super::trainer::Trainer;
use crate::checkpoint::Snapshot;
use crate::error::Result;
use crate::plan::{Buffer, Compression};
use crate::tensor::{HostTensor, Named, Shape};

/// In the name of a tensor, between the parameter's and the device's index.
pub(super) const RESIDUAL: &str = ".residual_";

/// The names of the residuals in `snapshot` with their parameters' shapes.
pub(super) fn held_back<'a>(
    snapshot: &'a Snapshot,
    parameters: &'a Named<Shape>,
) -> impl Iterator<Item = (&'a String, Shape)> {
    snapshot.optimizer.iter().filter_map(|(name, _)| {
        let (parameter, _) = name.rsplit_once(RESIDUAL)?;
        Some((name, parameters.get(parameter)?.clone()))
    })
}

impl Trainer {
    /// The devices that hold back a part of their gradients.
    fn holders(&self) -> Vec<usize> {
        let alive = self.coordinator.alive();
        let packs = self.options.gradient_compression != Compression::None && alive.len() > 1;
        (0..alive.len()).filter(|&device| packs && alive[device]).collect()
    }

    /// What each device holds back, by trained parameter. What a device that fails over this held back is lost with it.
    pub(super) fn residuals(&mut self) -> Result<Named<HostTensor>> {
        let trained = self.coordinator.layout().trained_buckets();
        let mut residuals = Named::default();
        for device in self.holders() {
            let read = |trainer: &mut Self, bucket| trainer.coordinator.read(device, Buffer::Residual(bucket));
            match self.named_in(trained, read) {
                Ok(values) => residuals.extend(self.tensors(values, &format!("{RESIDUAL}{device}"))?)?,
                Err(error) if self.coordinator.alive()[device] => return Err(error),
                Err(_) => {}
            }
        }
        Ok(residuals)
    }

    /// Puts what `snapshot` says that each device held back in its place: nothing where it says nothing, and where it
    /// was made on another number of devices.
    pub(super) fn restore_residuals(&mut self, snapshot: &Snapshot, devices: usize) -> Result<()> {
        let saved = held_back(snapshot, &self.shapes()).next().is_some();
        if saved && self.options.gradient_compression == Compression::None {
            log::warn!(
                "the checkpoint holds parts of gradients that compression held back; without it they are dropped"
            );
        }
        self.coordinator.clear_residuals()?;
        let layout = self.coordinator.layout().clone();
        let holders = if devices == self.coordinator.devices() { self.holders() } else { Vec::new() };
        for device in holders {
            let of = values(&snapshot.optimizer, &format!("{RESIDUAL}{device}"))?;
            for bucket in (0..layout.trained_buckets()).filter(|_| !of.is_empty()) {
                let packed = bytemuck::pod_collect_to_vec(&layout.pack(bucket, &of)?);
                self.coordinator.write_to(&[device], Buffer::Residual(bucket), packed)?;
            }
        }
        Ok(())
    }
}
