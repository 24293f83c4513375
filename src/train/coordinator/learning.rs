//! What a step's timings teach: a better lead, a better split, whether a device without samples has become fast, who gets
//! none and why.

use super::{Coordinator, Phases};
use crate::error::Result;
use crate::train::idle::Idle;
use crate::train::probe::{Probes, Verdict};
use crate::train::split::Resplit;

/// Steps between two looks at whether another split would be faster.
const REFIT_EVERY: u64 = 5;
/// Steps within which a better split must have paid for the change.
pub(super) const PAYBACK: u64 = 500;

impl Coordinator {
    /// Learns from a step's timings; now and then moves rows to where they are done sooner.
    pub(super) fn learn(
        &mut self,
        shards: &[usize],
        busy: &[f64],
        phases: Phases,
        applied: bool,
    ) -> Result<Option<Resplit>> {
        // A short batch pads its micro-batches: its times say little about full ones.
        if shards.iter().sum::<usize>() != self.splitter.batch() {
            return Ok(None);
        }
        let resplit = if self.probes.active().is_some() {
            self.judge(busy)?
        } else {
            let step = phases.gradients + phases.update;
            let mut steady = applied;
            for (index, (&rows, &seconds)) in shards.iter().zip(busy).enumerate() {
                if rows > 0 && self.alive()[index] {
                    if std::mem::take(&mut self.fresh[index]) {
                        steady = false;
                    } else {
                        self.splitter.observe(index, rows, seconds);
                    }
                }
            }
            if steady {
                self.leads.observe(self.lead, phases.update);
                self.splitter.observe_rest(self.lead, step - busy.iter().copied().fold(0.0, f64::max));
            }
            self.steps_since_refit += 1;
            let resplit = if self.steps_since_refit < REFIT_EVERY {
                None
            } else {
                self.choose_lead(step)?;
                self.refit()?
            };
            self.look_at_idle(busy)?;
            resplit
        };
        self.note_idle();
        Ok(resplit)
    }

    fn refit(&mut self) -> Result<Option<Resplit>> {
        self.steps_since_refit = 0;
        let least = self.change_cost / self.horizon.clamp(1, PAYBACK) as f64;
        let resplit = self.splitter.refit(self.fleet.alive(), self.lead, least);
        self.unsettled |= resplit.is_some();
        self.settle()?;
        Ok(resplit)
    }

    /// Judges a step of a probe. The other devices ran fewer rows than they are made ready for, which says nothing of them.
    fn judge(&mut self, busy: &[f64]) -> Result<Option<Resplit>> {
        let Some(probe) = self.probes.active() else { return Ok(None) };
        let (device, rows) = (probe.device, probe.rows);
        let others = longest(busy, device);
        match self.probes.measured(busy[device], others) {
            Verdict::WarmUp | Verdict::InVain => return Ok(None),
            Verdict::Anew => self.splitter.measure_anew(device, rows, busy[device]),
            Verdict::More => self.splitter.observe(device, rows, busy[device]),
            Verdict::Last => {
                self.splitter.observe(device, rows, busy[device]);
                let resplit = self.refit()?;
                self.probes.end(self.splitter.full()[device] > 0, others);
                return Ok(resplit);
            }
        }
        Ok(None)
    }

    /// Counts the steps of devices without samples, and starts to measure one whose turn it is.
    fn look_at_idle(&mut self, busy: &[f64]) -> Result<()> {
        let batch = self.splitter.batch();
        let rows = self.splitter.movable(Probes::rows(batch));
        if !self.splitter.can_lend(rows) {
            return Ok(());
        }
        for device in 0..self.alive().len() {
            if self.splitter.full()[device] > 0 || !self.alive()[device] {
                self.probes.busy(device);
                continue;
            }
            let expected = self.splitter.predict(device, rows);
            if self.probes.idle(device, expected, longest(busy, device)) {
                self.refresh(&[device])?;
                if !self.ready_for(&[device], rows)?.is_empty() {
                    self.probes.start(device, rows, expected);
                } else {
                    self.probes.refused(device);
                }
            }
        }
        Ok(())
    }

    /// Notes which devices get no samples since the last step, and which get some again.
    fn note_idle(&mut self) {
        for device in 0..self.idle.len() {
            let idle = self.alive()[device] && self.splitter.leaves_out(device);
            if idle == std::mem::replace(&mut self.idle[device], idle) {
                continue;
            }
            let label = self.labels()[device].clone();
            if idle {
                let cost = self.splitter.cost(device);
                let (least, finish) = (self.splitter.movable(1), self.splitter.finish());
                let sharing = self.splitter.sharing(self.fleet.alive(), self.lead);
                self.idled.push(Idle { device, label, cost, least, finish, sharing });
            } else if self.alive()[device] {
                self.employed.push(label);
            }
        }
    }
}

/// The longest time but `device`'s.
fn longest(busy: &[f64], device: usize) -> f64 {
    busy.iter().enumerate().filter(|(index, _)| *index != device).map(|(_, &seconds)| seconds).fold(0.0, f64::max)
}
