//! Who takes part: devices that failed give their rows away, one that updated is replaced, devices that come back are
//! let in, and all that have rows are prepared for them.

use std::time::Instant;

use super::Coordinator;
use crate::error::{Error, Result};
use crate::fleet::{Answer, Job};
use crate::plan::Buffer;

impl Coordinator {
    /// Divides full batches as a checkpoint says.
    ///
    /// # Errors
    /// When the saved split does not fit, or a device cannot take its rows.
    pub(crate) fn restore_split(&mut self, rows: Vec<usize>) -> Result<()> {
        self.planner.restore(rows)?;
        self.settled = None;
        self.settle()
    }

    /// Makes sure of a device that updates, and takes its optimizer state as it is: the caller is about to write it.
    pub(crate) fn accept_fresh_state(&mut self) -> Result<()> {
        self.settle()?;
        self.state_lost = false;
        Ok(())
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled == Some(self.fleet.generation())
    }

    /// After a change: gives the rows of devices that failed to the others, replaces one that updated, and has every
    /// device prepare for its rows of a full batch. Again, when another one fails over it.
    pub(super) fn settle(&mut self) -> Result<()> {
        while !self.is_settled() {
            let generation = self.fleet.generation();
            self.planner.remove_absent(&self.fleet.profiles());
            if self.fleet.get(self.lead()).is_none() {
                self.state_lost = true;
                self.elect()?;
            }
            self.prepare()?;
            self.settled = Some(generation);
        }
        Ok(())
    }

    /// Lets in devices that have come back, with a share to be measured with; they get the weights with it.
    pub(super) fn let_in(&mut self) -> Result<()> {
        while let Some(device) = self.fleet.back() {
            self.settle()?;
            self.has_state()?;
            self.fleet.admit(device);
            self.planner.admit(device, &self.fleet.profiles());
            self.settle()?;
        }
        Ok(())
    }

    /// Has every device that has rows of a full batch prepare for them.
    fn prepare(&mut self) -> Result<()> {
        let rows = self.planner.full().to_vec();
        let working: Vec<usize> = self.fleet.here().filter(|&device| rows[device] > 0).collect();
        self.refresh(&working)?;
        let begin = Instant::now();
        for (device, answer) in self.fleet.ask(&working, |device| Job::Prepare { rows: rows[device], needed: true })? {
            if let (Answer::Prepare(Ok(size)), Some(present)) = (answer, self.fleet.get_mut(device)) {
                present.untimed |= present.micro_batch != size;
                present.micro_batch = size;
            }
        }
        self.planner.prepared_in(begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Has `devices` prepare for `rows` rows that are not of their own: those that have the memory. The others stay as
    /// they are, which is told once.
    pub(super) fn prepare_others(&mut self, devices: &[usize], rows: usize) -> Result<Vec<usize>> {
        let mut prepared = Vec::new();
        for (device, answer) in self.fleet.ask(devices, |_| Job::Prepare { rows, needed: false })? {
            if let Answer::Prepare(Err(error)) = answer {
                let told =
                    self.fleet.get_mut(device).is_none_or(|present| std::mem::replace(&mut present.cramped, true));
                if !told {
                    let label = self.fleet.label(device);
                    log::warn!("{label} lacks the memory to be measured or compared with the other devices: {error}");
                }
            } else {
                prepared.push(device);
            }
        }
        Ok(prepared)
    }

    /// Has the first device update that works and has the memory, if possible one with the current weights.
    pub(super) fn elect(&mut self) -> Result<()> {
        let mut refusal = None;
        let mut candidates: Vec<usize> = self.fleet.here().collect();
        candidates.sort_by_key(|&device| self.fleet.get(device).is_none_or(|present| present.behind));
        for device in candidates {
            if self.takes_over(device, &mut refusal)? {
                self.set_owner(device);
                return Ok(());
            }
        }
        Err(refusal.unwrap_or_else(|| Error::Training("no device is left".into())))
    }

    fn set_owner(&mut self, device: usize) {
        self.planner.set_owner(device);
        if let Some(present) = self.fleet.get_mut(device) {
            present.behind = false; // what it has is what all will have
            present.untimed = true;
        }
    }

    /// Asks `device` to prepare for updates; whether it is. Why it lacks the memory comes into `refusal`.
    fn takes_over(&mut self, device: usize, refusal: &mut Option<Error>) -> Result<bool> {
        let answer = self.fleet.ask(&[device], |_| Job::Lead {})?.pop();
        if let Some((_, Answer::Lead(Err(error)))) = answer {
            log::warn!("{} lacks the memory to apply the updates: {error}", self.fleet.label(device));
            if let Some(present) = self.fleet.get_mut(device) {
                present.profile.refuse_updates();
            }
            *refusal = Some(error);
            return Ok(false);
        }
        Ok(answer.is_some())
    }

    /// Has device `to` update from now on, if it has the memory. Until it has all of the optimizer's state, nothing
    /// changes, so a device that fails over this costs nothing that is not elsewhere.
    pub(crate) fn hand_over(&mut self, to: usize) -> Result<bool> {
        self.settle()?;
        let from = self.lead();
        if to == from || self.fleet.get(to).is_none() {
            return Ok(false);
        }
        self.refresh(&[to])?;
        if !self.takes_over(to, &mut None)? {
            return Ok(false);
        }
        let moved = self.move_state(to)?;
        if moved {
            self.set_owner(to);
        }
        self.fleet.ask(&[if moved { from } else { to }], |_| Job::Follow {})?;
        self.settle()?;
        Ok(moved)
    }

    /// Copies the optimizer's state to device `to`; whether it has all of it.
    fn move_state(&mut self, to: usize) -> Result<bool> {
        for bucket in 0..self.layout.buckets().len() {
            let owner = self.planner.plan().owner(bucket);
            for moment in 0..self.moments {
                let buffer = Buffer::State { moment, bucket };
                let Some(values) = self.read_from(owner, buffer)? else { return Ok(false) };
                self.write_to(&[to], buffer, values)?;
            }
        }
        Ok(self.fleet.get(to).is_some() && self.fleet.get(self.lead()).is_some())
    }

    /// Brings those of `devices` that have not followed the updates up to date.
    pub(super) fn refresh(&mut self, devices: &[usize]) -> Result<()> {
        let is_behind = |&device: &usize| self.fleet.get(device).is_some_and(|present| present.behind);
        let behind: Vec<usize> = devices.iter().copied().filter(is_behind).collect();
        if behind.is_empty() {
            return Ok(());
        }
        for bucket in 0..self.layout.buckets().len() {
            let buffer = Buffer::Parameter(bucket);
            // An owner that fails over it is found by whoever goes on; then all weights are written anew.
            let Some(values) = self.read_from(self.planner.plan().owner(bucket), buffer)? else { return Ok(()) };
            self.write_to(&behind, buffer, values)?;
        }
        for device in behind {
            if let Some(present) = self.fleet.get_mut(device) {
                present.behind = false;
            }
        }
        Ok(())
    }
}
