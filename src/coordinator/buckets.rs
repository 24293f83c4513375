//! Buckets of one device or of all, read, written and compared outside of a step.

use std::sync::Arc;

use super::Coordinator;
use crate::error::{Error, Result};
use crate::fleet::{Answer, Job};
use crate::plan::Buffer;

impl Coordinator {
    /// Overwrites a bucket on every device (optimizer state: on its owner, which alone has it). Devices that do not
    /// follow the updates get weights when they need them.
    ///
    /// # Errors
    /// When no device is left.
    pub(crate) fn write(&mut self, buffer: Buffer, values: Vec<f32>) -> Result<()> {
        self.settle()?;
        let has_it = |&device: &usize| match buffer {
            Buffer::State { bucket, .. } => self.planner.plan().owner(bucket) == device,
            _ => self.fleet.get(device).is_some_and(|present| !present.behind),
        };
        let targets: Vec<usize> = self.fleet.here().filter(has_it).collect();
        self.write_to(&targets, buffer, values)
    }

    /// Overwrites a bucket on those of `devices` that work.
    pub(crate) fn write_to(&mut self, devices: &[usize], buffer: Buffer, values: Vec<f32>) -> Result<()> {
        let values = Arc::new(values);
        self.fleet.ask(devices, |_| Job::Write { buffer, values: values.clone() }).map(drop)
    }

    /// Reads a bucket from `device`.
    ///
    /// # Errors
    /// When that device fails, or has failed before.
    pub(crate) fn read(&mut self, device: usize, buffer: Buffer) -> Result<Vec<f32>> {
        if self.fleet.get(device).is_none() {
            return Err(Error::Training(format!("{} no longer works, {buffer} is gone", self.fleet.label(device))));
        }
        if matches!(buffer, Buffer::Parameter(_)) {
            self.refresh(&[device])?;
        }
        let failed = format!("{} failed while {buffer} was read from it", self.fleet.label(device));
        self.read_from(device, buffer)?.ok_or(Error::Training(failed))
    }

    /// A bucket of `device`; `None` when the device fails over it or has failed before.
    pub(super) fn read_from(&mut self, device: usize, buffer: Buffer) -> Result<Option<Vec<f32>>> {
        let read = self.fleet.ask(&[device], |_| Job::Read { buffer })?.pop();
        Ok(read.and_then(|(_, answer)| if let Answer::Read(values) = answer { Some(values) } else { None }))
    }

    /// Has all devices forget what they hold back of gradients: it is of gradients that were not worth keeping.
    pub(crate) fn clear_residuals(&mut self) -> Result<()> {
        let devices: Vec<usize> = self.fleet.here().collect();
        self.fleet.ask(&devices, |_| Job::ClearResiduals {}).map(drop)
    }

    /// Compares the weights of all devices that follow the updates by their fingerprints.
    ///
    /// # Errors
    /// When a device's differ from the owner's; the message names the device and the buckets. Nothing is repaired: how
    /// they came to differ is unknown, and so is which device is right.
    pub(crate) fn verify_weights(&mut self) -> Result<()> {
        self.settle()?;
        let follows = |&device: &usize| self.fleet.get(device).is_some_and(|present| !present.behind);
        let asked: Vec<usize> = self.fleet.here().filter(follows).collect();
        let mut prints = vec![None; self.fleet.len()];
        for (device, answer) in self.fleet.ask(&asked, |_| Job::Fingerprints {})? {
            if let Answer::Fingerprints(values) = answer {
                prints[device] = Some(values);
            }
        }
        // A bucket is right as its owner has it; an owner that failed over this is told of by whoever goes on.
        let owner = |bucket: usize| self.planner.plan().owner(bucket);
        for (device, found) in prints.iter().enumerate() {
            let Some(found) = found else { continue };
            let differs = |&b: &usize| prints[owner(b)].as_ref().is_some_and(|right| right.get(b) != found.get(b));
            let buckets: Vec<usize> = (0..self.layout.buckets().len()).filter(differs).collect();
            if let Some(&first) = buckets.first() {
                return Err(Error::Training(format!(
                    "the weights of {} differ from those of {} in buckets {buckets:?}: one of the two devices or its \
                     driver has lost or changed data. Go on from the last checkpoint, without the device you trust less",
                    self.fleet.label(device),
                    self.fleet.label(owner(first))
                )));
            }
        }
        Ok(())
    }
}
