//! Buckets of one device or of all, read, written and compared outside of a step.

use super::Coordinator;
use crate::error::{Error, Result};
use crate::plan::Buffer;
use crate::train::replica::{Event, Job};

impl Coordinator {
    /// Overwrites a bucket on every device (optimizer state: on the lead, which alone has it). Devices that do not follow the
    /// updates get weights when they need them.
    ///
    /// # Errors
    /// When no device is left.
    pub fn write(&mut self, buffer: Buffer, values: Vec<f32>) -> Result<()> {
        self.settle()?;
        let only_lead = matches!(buffer, Buffer::State { .. });
        let has_it = |&i: &usize| if only_lead { i == self.lead } else { !self.stale[i] };
        let targets = self.fleet.live().filter(has_it).collect();
        self.write_to(targets, buffer, values)
    }

    /// Reads a bucket from device `index`.
    ///
    /// # Errors
    /// When that device fails, or has failed before.
    pub fn read(&mut self, index: usize, buffer: Buffer) -> Result<Vec<f32>> {
        if !self.alive()[index] {
            return Err(Error::Training(format!("{} no longer works, {buffer} is gone", self.labels()[index])));
        }
        if matches!(buffer, Buffer::Parameter(_)) {
            self.refresh(&[index])?;
        }
        let read = self.read_alive(index, buffer)?;
        read.ok_or_else(|| Error::Training(format!("{} failed while {buffer} was read from it", self.labels()[index])))
    }

    /// Compares the weights of all devices that follow the updates by their fingerprints.
    ///
    /// # Errors
    /// When a device's differ from the lead's; the message names the device and the buckets. Nothing is repaired: how they
    /// came to differ is unknown, and so is which device is right.
    pub fn verify_weights(&mut self) -> Result<()> {
        self.settle()?;
        let asked: Vec<usize> = self.fleet.live().filter(|&i| !self.stale[i]).collect();
        let ticket = self.fleet.ticket();
        asked.iter().for_each(|&index| self.fleet.send(index, ticket, Job::Fingerprints));
        let mut prints: Vec<Option<Vec<u64>>> = vec![None; self.fleet.len()];
        self.fleet.collect(ticket, asked, |index, event| {
            if let Event::Fingerprints(values) = event {
                prints[index] = Some(values);
            }
        })?;
        let Some(expected) = prints[self.lead].clone() else { return Ok(()) };
        for (index, found) in prints.iter().enumerate() {
            let Some(found) = found else { continue };
            let buckets: Vec<usize> = (0..expected.len()).filter(|&b| found.get(b) != expected.get(b)).collect();
            if !buckets.is_empty() {
                return Err(Error::Training(format!(
                    "the weights of {} differ from those of {} in buckets {buckets:?}: one of the two devices or its \
                     driver has lost or changed data. Go on from the last checkpoint, without the device you trust less",
                    self.labels()[index],
                    self.labels()[self.lead]
                )));
            }
        }
        Ok(())
    }
}
