//! The weights by name, as devices have them.

use super::Trainer;
use crate::error::Result;
use crate::plan::Buffer;
use crate::tensor::Named;

impl Trainer {
    /// All weights by name, as device `device` has them; equal on all.
    ///
    /// # Errors
    /// When that device fails.
    pub fn weights_of(&mut self, device: usize) -> Result<Named<Vec<f32>>> {
        self.named(|trainer, bucket| trainer.coordinator.read(device, Buffer::Parameter(bucket)))
    }

    /// Overwrites all weights, by name, on every device; their moving average, where there is one, starts anew.
    ///
    /// # Errors
    /// When a parameter has no value of its shape.
    pub fn set_weights(&mut self, weights: &Named<Vec<f32>>) -> Result<()> {
        self.write_named(Buffer::Parameter, weights)?;
        self.start_average(weights)
    }

    /// The values of each parameter, out of what `read` gives for each bucket.
    pub(in crate::train) fn named(
        &mut self,
        read: impl Fn(&mut Self, usize) -> Result<Vec<f32>>,
    ) -> Result<Named<Vec<f32>>> {
        self.named_in(self.coordinator.layout().buckets().len(), read)
    }

    /// The values of each parameter in the first `count` buckets.
    pub(in crate::train) fn named_in(
        &mut self,
        count: usize,
        read: impl Fn(&mut Self, usize) -> Result<Vec<f32>>,
    ) -> Result<Named<Vec<f32>>> {
        let layout = self.coordinator.layout().clone();
        let buckets = (0..count).map(|b| read(self, b)).collect::<Result<Vec<_>>>()?;
        let read = layout.parameters().iter().filter(|placed| placed.bucket < count);
        Named::of(read.map(|p| (&p.name, layout.unpack(p, bytemuck::cast_slice(&buckets[p.bucket])))))
    }

    pub(in crate::train) fn write_named(
        &mut self,
        to: impl Fn(usize) -> Buffer,
        values: &Named<Vec<f32>>,
    ) -> Result<()> {
        let layout = self.coordinator.layout().clone();
        for bucket in 0..layout.buckets().len() {
            let bytes = layout.pack(bucket, values)?;
            self.coordinator.write(to(bucket), bytemuck::pod_collect_to_vec(&bytes))?;
        }
        Ok(())
    }
}
