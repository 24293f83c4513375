//! Who takes part: devices that failed give their rows away, a lead that failed is replaced, devices that come back are let
//! in, and all that have rows are made ready for them.

use std::time::Instant;

use super::Coordinator;
use crate::error::Result;
use crate::train::replica::{Event, Job};

impl Coordinator {
    /// Divides full batches as a checkpoint says.
    ///
    /// # Errors
    /// When the saved split does not fit, or a device cannot take its rows.
    pub fn restore_split(&mut self, full: Vec<usize>) -> Result<()> {
        self.splitter.restore(full)?;
        self.unsettled = true;
        self.settle()
    }

    /// Whether the optimizer's state was lost and has not been restored yet; a snapshot taken then would be a mixture.
    pub(in crate::train) fn state_lost(&self) -> bool {
        self.state_lost || !self.alive()[self.lead]
    }

    /// Makes sure of a lead that works, and takes its optimizer state as it is: the caller is about to write it.
    pub(in crate::train) fn accept_fresh_state(&mut self) -> Result<()> {
        self.settle()?;
        self.state_lost = false;
        Ok(())
    }

    /// After a change: gives the rows of devices that failed to the others, replaces a lead that failed, and has every
    /// device make ready for its rows of a full batch. Again, when another one fails over it.
    pub(in crate::train) fn settle(&mut self) -> Result<()> {
        loop {
            let changed = self.settled != self.fleet.alive();
            if !changed && !std::mem::take(&mut self.unsettled) {
                return Ok(());
            }
            let alive = self.fleet.alive().to_vec();
            self.state_lost |= !alive[self.lead];
            if self.probes.active().is_some_and(|probe| !alive[probe.device]) {
                self.probes.abandon();
            }
            for index in (0..alive.len()).filter(|&i| !alive[i]) {
                self.splitter.remove(index, &alive);
                self.leads.forget(index);
            }
            let ready = if alive[self.lead] { Ok(()) } else { self.elect() };
            if let Err(error) = ready.and_then(|()| self.prepare()) {
                self.unsettled = true;
                return Err(error);
            }
            self.settled = alive;
        }
    }

    /// Lets in devices that have come back, with a share to be measured with; they get the weights with it.
    pub(super) fn let_in(&mut self) -> Result<()> {
        while let Some(index) = self.fleet.arrived() {
            self.settle()?;
            if self.state_lost {
                return Ok(());
            }
            self.fleet.admit(index);
            self.fresh[index] = true;
            self.stale[index] = true;
            self.splitter.admit(index, self.fleet.alive());
            self.joined.push(self.labels()[index].clone());
            self.unsettled = true;
            self.settle()?;
        }
        Ok(())
    }

    /// Has every device that has rows of a full batch make ready for them.
    fn prepare(&mut self) -> Result<()> {
        let working: Vec<usize> = self.fleet.live().filter(|&i| self.splitter.full()[i] > 0).collect();
        self.refresh(&working)?;
        let working: Vec<usize> = working.into_iter().filter(|&i| self.alive()[i]).collect();
        let ticket = self.fleet.ticket();
        for &index in &working {
            self.fleet.send(index, ticket, Job::Prepare { rows: self.splitter.full()[index], needed: true });
        }
        let begin = Instant::now();
        let mut sizes = self.micro_batches.clone();
        let outcome = self.fleet.collect(ticket, working, |index, event| {
            if let Event::Prepared(size) = event {
                sizes[index] = size;
            }
        });
        for (index, size) in sizes.iter().enumerate() {
            self.fresh[index] |= *size != self.micro_batches[index];
        }
        self.micro_batches = sizes;
        self.change_cost = begin.elapsed().as_secs_f64();
        outcome
    }

    /// Has the devices `asked` make ready for `rows` rows that are not of their own: those that have the memory. The others stay as
    /// they are, which is told once.
    pub(in crate::train) fn ready_for(&mut self, asked: &[usize], rows: usize) -> Result<Vec<usize>> {
        let ticket = self.fleet.ticket();
        for &index in asked {
            self.fleet.send(index, ticket, Job::Prepare { rows, needed: false });
        }
        let (mut ready, mut refused) = (Vec::new(), Vec::new());
        self.fleet.collect(ticket, asked.to_vec(), |index, event| match event {
            Event::Refused(error) => refused.push((index, error)),
            _ => ready.push(index),
        })?;
        for (index, error) in refused {
            if !std::mem::replace(&mut self.cramped[index], true) {
                let label = &self.labels()[index];
                log::warn!("{label} has not the memory to be measured or compared with the other devices: {error}");
            }
        }
        Ok(ready)
    }
}
