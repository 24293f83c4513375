//! Who applies the updates: one that works, and, where the split follows measurements, the one that is done with them first.

use std::sync::Arc;
use std::time::Instant;

use super::Coordinator;
use super::learning::PAYBACK;
use crate::error::{Error, Result};
use crate::plan::Buffer;
use crate::train::lead::{Handover, Timed};
use crate::train::replica::{Event, Job};
use crate::train::rest::exchanges;

impl Coordinator {
    /// Makes the first device that works and has the memory the lead, if possible one with the current weights.
    pub(super) fn elect(&mut self) -> Result<()> {
        let mut refusal = None;
        let mut asked = vec![false; self.fleet.len()];
        loop {
            let candidates = || self.fleet.live().filter(|&index| !asked[index]);
            let Some(index) = candidates().find(|&index| !self.stale[index]).or_else(|| candidates().next()) else {
                return Err(refusal.unwrap_or_else(|| Error::Training("no device is left".into())));
            };
            asked[index] = true;
            match self.ask_to_lead(index)? {
                None if self.alive()[index] => {
                    self.lead = index;
                    self.stale[index] = false; // what it has is what all will have
                    self.leads.changed(0.0);
                    return Ok(());
                }
                None => {}
                Some(error) => refusal = Some(error),
            }
        }
    }

    /// Asks device `index` to get ready for updates; why it has not the memory, if so. Whether it lives must be looked at.
    fn ask_to_lead(&mut self, index: usize) -> Result<Option<Error>> {
        let ticket = self.fleet.ticket();
        self.fleet.send(index, ticket, Job::Lead);
        let mut refusal = None;
        self.fleet.collect(ticket, vec![index], |_, event| {
            if let Event::Refused(error) = event {
                refusal = Some(error);
            }
        })?;
        if let Some(error) = &refusal {
            log::warn!("{} has not the memory to apply the updates: {error}", self.labels()[index]);
            self.leads.refuse(index);
        }
        Ok(refusal)
    }

    /// Lets another device lead where that makes steps faster; a step takes `step` seconds.
    pub(super) fn choose_lead(&mut self, step: f64) -> Result<()> {
        let (lead, alive) = (self.lead, self.fleet.alive());
        // One that does everything alone must lead, however fast others update.
        if !self.splitter.adapts() || !exchanges(self.splitter.full(), lead) {
            return Ok(());
        }
        let each = |index: usize| self.splitter.cost(index).map(|(_, each)| each).filter(|_| alive[index]);
        let each: Vec<Option<f64>> = (0..alive.len()).map(each).collect();
        let better = self.leads.better(lead, &each, step, self.horizon.min(PAYBACK));
        let soloist = || self.splitter.soloist(alive, lead, |index| self.leads.may_solo(index));
        let better = better.map(|change| (change, Timed::Update));
        let Some(((to, before, expected), of)) = better.or_else(|| soloist().map(|change| (change, Timed::Step)))
        else {
            return Ok(());
        };
        if of == Timed::Step {
            self.leads.solo(to);
        }
        let begin = Instant::now();
        if self.hand_over(to)? {
            self.leads.changed(begin.elapsed().as_secs_f64());
            self.splitter.forget_rest();
            let label = |index: usize| self.labels()[index].clone();
            self.handovers.push(Handover { from: label(lead), to: label(to), before, expected, of });
        }
        Ok(())
    }

    /// Gives the lead to device `to`, if that has the memory. Until it has all of the optimizer's state, the old lead leads, so a
    /// device that fails over this costs nothing that is not elsewhere.
    pub(in crate::train) fn hand_over(&mut self, to: usize) -> Result<bool> {
        self.settle()?;
        let from = self.lead;
        if to == from || self.alive().get(to) != Some(&true) {
            return Ok(false);
        }
        self.refresh(&[to])?;
        if self.ask_to_lead(to)?.is_some() {
            return Ok(false);
        }
        let buckets = self.layout.buckets().len();
        for buffer in
            (0..self.moments).flat_map(|moment| (0..buckets).map(move |bucket| Buffer::State { moment, bucket }))
        {
            let values = self.read_alive(from, buffer)?;
            let Some(values) = values.filter(|_| self.alive()[to]) else { break };
            self.write_to(vec![to], buffer, values)?;
        }
        let done = self.alive()[from] && self.alive()[to];
        if done {
            self.lead = to;
        }
        let follower = if done { from } else { to };
        let ticket = self.fleet.ticket();
        self.fleet.send(follower, ticket, Job::Follow);
        self.fleet.collect(ticket, self.fleet.live().filter(|&i| i == follower).collect(), |_, _| {})?;
        self.settle()?;
        Ok(done)
    }

    /// Brings the devices of `targets` that have not followed the updates up to date with the lead's weights.
    pub(in crate::train) fn refresh(&mut self, targets: &[usize]) -> Result<()> {
        let behind: Vec<usize> = targets.iter().copied().filter(|&i| self.stale[i] && self.alive()[i]).collect();
        if behind.is_empty() {
            return Ok(());
        }
        for bucket in 0..self.layout.buckets().len() {
            let buffer = Buffer::Parameter(bucket);
            // A lead that fails over it is found by whoever goes on; then all weights are written anew.
            let Some(values) = self.read_alive(self.lead, buffer)? else { return Ok(()) };
            self.write_to(behind.clone(), buffer, values)?;
        }
        behind.into_iter().for_each(|index| self.stale[index] = false);
        Ok(())
    }

    /// A bucket of device `index`; `None` when the device fails over it or has failed before.
    pub(super) fn read_alive(&mut self, index: usize, buffer: Buffer) -> Result<Option<Vec<f32>>> {
        if !self.alive()[index] {
            return Ok(None);
        }
        let ticket = self.fleet.ticket();
        self.fleet.send(index, ticket, Job::Read { buffer });
        let mut read = None;
        self.fleet.collect(ticket, vec![index], |_, event| {
            if let Event::Values(values) = event {
                read = Some(values);
            }
        })?;
        Ok(read)
    }

    /// Overwrites a bucket on those of the devices `targets` that work.
    pub(in crate::train) fn write_to(
        &mut self,
        mut targets: Vec<usize>,
        buffer: Buffer,
        values: Vec<f32>,
    ) -> Result<()> {
        targets.retain(|&index| self.alive()[index]);
        let values = Arc::new(values);
        let ticket = self.fleet.ticket();
        for &index in &targets {
            self.fleet.send(index, ticket, Job::Write { buffer, values: values.clone() });
        }
        self.fleet.collect(ticket, targets, |_, _| {})
    }
}
