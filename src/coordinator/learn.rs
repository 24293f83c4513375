//! What a step's timings teach: a better plan, whether a device without samples has become fast, who gets none and why.

use std::time::Instant;

use super::Coordinator;
use super::step::Phases;
use crate::balance::{Handover, Resplit};
use crate::error::Result;
use crate::fleet::Change;

impl Coordinator {
    /// Learns from a step's timings; now and then moves rows, or the update, to where they are done sooner.
    pub(super) fn learn(
        &mut self,
        rows: &[usize],
        busy: &[f64],
        phases: Phases,
        applied: bool,
    ) -> Result<Option<Resplit>> {
        // A short batch pads its micro-batches: its times say little about full ones.
        if rows.iter().sum::<usize>() != self.planner.batch() {
            return Ok(None);
        }
        let resplit = match self.planner.probed() {
            Some(device) => self.learn_of(device, busy)?,
            None => {
                self.note_times(rows, busy, phases, applied);
                let resplit = if self.planner.is_time() { self.improve()? } else { None };
                self.look_at_idle(busy)?;
                resplit
            }
        };
        self.note_idle();
        Ok(resplit)
    }

    /// Notes how long the devices took, and what the step took beside.
    fn note_times(&mut self, rows: &[usize], busy: &[f64], phases: Phases, applied: bool) {
        let lead = self.lead();
        let mut steady = applied;
        for device in (0..rows.len()).filter(|&device| rows[device] > 0 || device == lead) {
            let Some(present) = self.fleet.get_mut(device) else { continue };
            if std::mem::take(&mut present.untimed) {
                steady = false;
            } else if rows[device] > 0 {
                present.profile.observe(rows[device], busy[device]);
            }
        }
        if let Some(present) = self.fleet.get_mut(lead).filter(|_| steady) {
            let longest = busy.iter().copied().fold(0.0, f64::max);
            let overhead = phases.gradients + phases.update - longest;
            present.profile.observe_update(self.planner.plan().exchanges(rows), phases.update, overhead);
        }
    }

    /// Follows a better plan, where there is one. A device that lacks the memory to update leaves all as it is.
    fn improve(&mut self) -> Result<Option<Resplit>> {
        let Some(change) = self.planner.better(&self.fleet.profiles(), self.steps_left) else { return Ok(None) };
        let (from, to, generation) = (self.lead(), change.plan.lead(), self.fleet.generation());
        if to != from {
            let begin = Instant::now();
            if !self.hand_over(to)? {
                return Ok(None);
            }
            self.planner.handed_over_in(begin.elapsed().as_secs_f64());
            let label = |device: usize| self.fleet.label(device).to_owned();
            let (before, expected, of) = (change.before, change.expected, change.of);
            self.fleet.note(Change::Led(Handover { from: label(from), to: label(to), before, expected, of }));
        }
        // It was made for devices of which one is gone.
        if self.fleet.generation() != generation {
            return Ok(None);
        }
        let resplit = self.planner.adopt(change.plan);
        if resplit.is_some() {
            self.settled = None;
        }
        self.settle()?;
        Ok(resplit)
    }

    /// Learns from a step in which `device` was measured. The others ran fewer rows than they are prepared for, which
    /// says nothing of them.
    fn learn_of(&mut self, device: usize, busy: &[f64]) -> Result<Option<Resplit>> {
        let (seconds, others) = (busy[device], longest_but(busy, device));
        let Some(present) = self.fleet.get_mut(device) else { return Ok(None) };
        if !self.planner.probe(&mut present.profile, seconds, others) {
            return Ok(None);
        }
        let resplit = self.improve()?;
        if let Some(present) = self.fleet.get_mut(device) {
            self.planner.end_probe(&mut present.profile, others);
        }
        Ok(resplit)
    }

    /// Counts the steps of devices without samples, and starts to measure one whose turn it is.
    fn look_at_idle(&mut self, busy: &[f64]) -> Result<()> {
        let Some(rows) = self.planner.probe_rows() else { return Ok(()) };
        for device in 0..self.fleet.len() {
            let others = longest_but(busy, device);
            let Some(present) = self.fleet.get_mut(device) else { continue };
            if self.planner.full()[device] > 0 {
                present.profile.worked();
            } else if self.planner.is_due(&mut present.profile, rows, others) {
                self.refresh(&[device])?;
                let prepared = !self.prepare_others(&[device], rows)?.is_empty();
                let Some(present) = self.fleet.get_mut(device) else { continue };
                if prepared {
                    self.planner.start_probe(device, rows, &present.profile);
                } else {
                    present.profile.refuse_probe();
                }
            }
        }
        Ok(())
    }

    /// Notes which devices get no samples since the last step, and which get some again.
    fn note_idle(&mut self) {
        for device in 0..self.fleet.len() {
            let idle = self.planner.leaves_out(device);
            let Some(present) = self.fleet.get_mut(device) else { continue };
            if std::mem::replace(&mut present.idle, idle) == idle {
                continue;
            }
            let label = self.fleet.label(device).to_owned();
            let change = match idle {
                true => Change::Idle(self.planner.why_idle(&self.fleet.profiles(), device, label)),
                false => Change::Employed(label),
            };
            self.fleet.note(change);
        }
    }
}

/// The longest time but `device`'s.
fn longest_but(busy: &[f64], device: usize) -> f64 {
    busy.iter().enumerate().filter(|(index, _)| *index != device).map(|(_, &seconds)| seconds).fold(0.0, f64::max)
}
