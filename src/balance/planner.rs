//! The planner. It knows who does what of a step, and looks for something better now and then: by one cost, the
//! predicted time of a step, over rows and owners together. A change must make steps faster by more than they scatter,
//! and must pay for itself in the steps that are left.

use super::apportion::{apportion, equal_finish, in_rows, keeps_groups};
use super::costs::Costs;
use super::plan::{Plan, Resplit, Split};
use super::probe::{self, Probe, Verdict};
use super::profile::{Devices, Profile};
use super::reasons::{Idle, Sharing, Timed};
use crate::error::{Error, Result};

/// Predicted gain in step time, as a part of it, below which all stays as it is.
const HYSTERESIS: f64 = 0.03;
/// Steps within which a change must have paid for itself.
pub(crate) const PAYBACK: u64 = 500;
/// Full batches between two looks at whether something else would be faster.
const LOOK_EVERY: u64 = 5;

/// Knows who does what of a step, and finds something better by the predicted time of a step.
#[derive(Debug)]
pub struct Planner {
    /// Samples of a full batch.
    batch: usize,
    /// Consecutive samples that stay on one device.
    group: usize,
    /// Whether the plan follows measurements.
    adapts: bool,
    /// Proportions that a split which does not adapt keeps.
    shares: Vec<f64>,
    plan: Plan,
    /// Seconds that preparing devices for other rows took, the last time.
    preparing: f64,
    /// Seconds that making another device the owner took, the last time.
    handing_over: f64,
    /// Full batches since the last look.
    batches: u64,
    probe: Option<Probe>,
}

/// Something better than the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) plan: Plan,
    /// What another owner makes faster: seconds that it took, and that it should take.
    pub(crate) of: Timed,
    pub(crate) before: f64,
    pub(crate) expected: f64,
}

impl Planner {
    /// A planner for full batches of `batch` samples over `devices` devices; it adapts under [`Split::Speed`] only,
    /// unless it is to be `deterministic`.
    ///
    /// # Errors
    /// When the split's weights are not one a device.
    pub fn new(split: &Split, batch: usize, devices: usize, deterministic: bool) -> Result<Self> {
        let shares = split.shares(devices)?;
        Ok(Self {
            batch,
            group: 1,
            adapts: *split == Split::Speed && !deterministic,
            plan: Plan { rows: apportion(batch, 1, &shares), owners: vec![0] },
            shares,
            preparing: 0.0,
            handing_over: 0.0,
            batches: 0,
            probe: None,
        })
    }

    /// The same where each `group` consecutive samples of a batch must stay on one device.
    pub fn in_groups(mut self, group: usize) -> Self {
        self.group = group;
        self.plan.rows = apportion(self.batch, group, &self.shares);
        self
    }

    /// The same for a model of so many `buckets`.
    pub(crate) fn over_buckets(mut self, buckets: usize) -> Self {
        self.plan.owners = vec![0; buckets.max(1)];
        self
    }

    /// Samples of a full batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Rows of a full batch, by device.
    pub fn full(&self) -> &[usize] {
        &self.plan.rows
    }

    /// Consecutive samples that stay on one device.
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Rows of a batch of `samples`, by device.
    pub(crate) fn rows(&self, samples: usize) -> Vec<usize> {
        if samples == self.batch {
            self.plan.rows.clone()
        } else {
            self.in_proportion(samples, &as_shares(&self.plan.rows))
        }
    }

    /// The same in a training step, where a device may be measured.
    pub(crate) fn training_rows(&self, samples: usize) -> Vec<usize> {
        match &self.probe {
            Some(probe) if samples == self.batch => self.lend(probe.device, probe.rows),
            _ => self.rows(samples),
        }
    }

    fn in_proportion(&self, samples: usize, shares: &[f64]) -> Vec<usize> {
        apportion(samples, self.group, shares)
    }

    /// Whether `device` follows the updates: it has rows, updates, or is being measured.
    pub(crate) fn follows(&self, device: usize) -> bool {
        self.plan.rows[device] > 0 || self.plan.owners.contains(&device) || self.probed() == Some(device)
    }

    /// The device that is being measured although it has no rows.
    pub(crate) fn probed(&self) -> Option<usize> {
        self.probe.as_ref().map(|probe| probe.device)
    }

    /// Takes over a split that a checkpoint holds.
    ///
    /// # Errors
    /// When it is not one of this batch over this many devices.
    pub(crate) fn restore(&mut self, rows: Vec<usize>) -> Result<()> {
        let sum = rows.iter().try_fold(0_usize, |sum, rows| sum.checked_add(*rows));
        if rows.len() != self.plan.rows.len() || sum != Some(self.batch) {
            let message = format!(
                "the saved split {rows:?} is not one of {} samples over {} devices",
                self.batch,
                self.plan.rows.len()
            );
            return Err(Error::invalid("split", message));
        }
        if !keeps_groups(&rows, self.group) {
            let message =
                format!("the saved split {rows:?} cuts the groups of {} samples that batch norm takes", self.group);
            return Err(Error::invalid("split", message));
        }
        self.plan.rows = rows;
        Ok(())
    }

    /// Device `device` updates all buckets from now on.
    pub(crate) fn set_owner(&mut self, device: usize) {
        self.plan.owners.fill(device);
    }

    /// Gives the rows of devices that are absent to the others.
    pub(crate) fn remove_absent(&mut self, devices: &Devices<'_>) {
        if self.probed().is_some_and(|device| devices[device].is_none()) {
            self.probe = None;
        }
        for _ in devices.iter().filter(|device| device.is_none()) {
            let mut shares = of_present(devices, as_shares(&self.plan.rows));
            if shares.iter().sum::<f64>() == 0.0 {
                shares = of_present(devices, vec![1.0; devices.len()]);
            }
            self.plan.rows = self.in_proportion(self.batch, &shares);
        }
    }

    /// Gives `device`, which has come back, its share again; where the split adapts, an equal one to be measured with.
    pub(crate) fn admit(&mut self, device: usize, devices: &Devices<'_>) {
        let shares = if self.adapts {
            let mut shares = as_shares(&self.plan.rows);
            let present = devices.iter().flatten().count().max(1);
            shares[device] = shares.iter().sum::<f64>() / present.saturating_sub(1).max(1) as f64;
            shares
        } else {
            of_present(devices, self.shares.clone())
        };
        self.plan.rows = self.in_proportion(self.batch, &shares);
    }

    /// Notes the seconds that preparing devices for other rows took.
    pub(crate) fn prepared_in(&mut self, seconds: f64) {
        self.preparing = seconds;
    }

    /// Notes the seconds that making another device the owner took.
    pub(crate) fn handed_over_in(&mut self, seconds: f64) {
        self.handing_over = seconds;
    }

    /// Counts a full batch; whether it is time to look for something better.
    pub(crate) fn is_time(&mut self) -> bool {
        self.batches += 1;
        self.batches >= LOOK_EVERY
    }

    /// Something that makes steps faster by more than the hysteresis, and pays in the `steps` that are left.
    pub(crate) fn better(&mut self, devices: &Devices<'_>, steps: u64) -> Option<Change> {
        self.batches = 0;
        if !self.adapts {
            return None;
        }
        let costs = Costs::new(devices, self.plan.lead());
        // A device that has rows but no line yet will have one soon.
        let unknown = costs.lines.iter().zip(&self.plan.rows).any(|(line, &rows)| line.is_none() && rows > 0);
        if unknown || costs.lines.iter().flatten().count() < 2 {
            return None;
        }
        // The rows first: what the exchange costs with them is then measured, not guessed, when another owner is
        // thought of.
        [1, devices.len()].into_iter().find_map(|tried| self.best(&costs, tried, steps))
    }

    /// The cheapest plan under the first so many owners that are `tried`, if it is worth the change.
    fn best(&self, costs: &Costs<'_>, tried: usize, steps: u64) -> Option<Change> {
        let equal = equal_finish(self.batch, self.group, &costs.lines);
        let plans = costs.owners().take(tried).flat_map(|owner| {
            let rows = [Some(self.plan.rows.clone()), Some(equal.clone()), self.alone(costs, owner)];
            let owners = vec![owner; self.plan.owners.len()];
            rows.into_iter().flatten().map(move |rows| Plan { rows, owners: owners.clone() })
        });
        let by_cost = plans.map(|plan| (costs.step(&plan), plan));
        let (then, plan) = by_cost.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(_, plan)| *plan != self.plan)?;
        let (now, from, to) = (costs.step(&self.plan), self.plan.lead(), plan.lead());
        let preparing = if plan.rows == self.plan.rows { 0.0 } else { self.preparing };
        let handing_over = if plan.owners == self.plan.owners { 0.0 } else { self.handing_over };
        let saved = now - then;
        let pays = saved * steps.clamp(1, PAYBACK) as f64 >= preparing + handing_over;
        let updates = costs.update(from).zip(costs.update(to)).filter(|_| plan.is_shared());
        let (of, before, expected) = match updates {
            Some((before, expected)) => (Timed::Update, before, expected),
            None => (Timed::Step, now, then),
        };
        (saved >= HYSTERESIS * now && pays).then_some(Change { plan, of, before, expected })
    }

    /// Follows `plan` from now on; how the split changes by that.
    pub(crate) fn adopt(&mut self, plan: Plan) -> Option<Resplit> {
        let before = std::mem::replace(&mut self.plan, plan).rows;
        (before != self.plan.rows).then(|| Resplit { before, after: self.plan.rows.clone() })
    }

    /// All rows for `device`, whose speed is known.
    fn alone(&self, costs: &Costs<'_>, device: usize) -> Option<Vec<usize>> {
        costs.lines[device]?;
        let mut rows = vec![0; self.plan.rows.len()];
        rows[device] = self.batch;
        Some(rows)
    }

    /// What sharing would cost, where one device does the batch alone and others could help.
    fn sharing(&self, costs: &Costs<'_>) -> Option<Sharing> {
        let lead = self.plan.lead();
        let rows = equal_finish(self.batch, self.group, &costs.lines);
        let together = Plan { rows, owners: self.plan.owners.clone() };
        let alone = self.alone(costs, lead).filter(|alone| *alone == self.plan.rows && together.is_shared());
        let exchange = costs.overhead(lead, true).unwrap_or(0.0);
        alone.map(|_| Sharing { together: costs.step(&together), exchange, alone: costs.step(&self.plan) })
    }

    /// Why `device`, called `label`, gets no samples.
    pub(crate) fn why_idle(&self, devices: &Devices<'_>, device: usize, label: String) -> Idle {
        let costs = Costs::new(devices, self.plan.lead());
        let (cost, finish) = (costs.lines[device], costs.finish(&self.plan.rows));
        Idle { device, label, cost, least: self.movable(1), finish, sharing: self.sharing(&costs) }
    }

    /// Whether `device` gets nothing although nobody said so.
    pub(crate) fn leaves_out(&self, device: usize) -> bool {
        self.plan.rows[device] == 0 && self.shares[device] > 0.0
    }

    /// Rows that a device without samples can be given to be measured with: only where the plan follows measurements,
    /// and the device with the most rows has these.
    pub(crate) fn probe_rows(&self) -> Option<usize> {
        let rows = self.movable(probe::rows(self.batch));
        let lends = self.plan.rows.iter().max().is_some_and(|most| *most >= rows.min(self.batch));
        (self.adapts && lends).then_some(rows)
    }

    /// Counts a step in which `device` had no samples and the others took `others` seconds; whether it is its turn to
    /// be measured with `rows` rows.
    pub(crate) fn is_due(&self, profile: &mut Profile, rows: usize, others: f64) -> bool {
        let expected = profile.predict(rows);
        profile.pause.is_over(expected, others) && self.probe.is_none()
    }

    /// Starts to measure `device`, which is prepared for `rows` rows.
    pub(crate) fn start_probe(&mut self, device: usize, rows: usize, profile: &Profile) {
        self.probe = Some(Probe::new(device, rows, profile));
    }

    /// Notes what a step showed of the device that is being measured; whether it has been measured. A device that is as
    /// slow as it was is measured no further.
    pub(crate) fn probe(&mut self, profile: &mut Profile, seconds: f64, others: f64) -> bool {
        let verdict = self.probe.as_mut().map(|probe| probe.measured(profile, seconds, others));
        if verdict == Some(Verdict::AsSlow) {
            self.end_probe(profile, others);
        }
        verdict == Some(Verdict::Measured)
    }

    /// Ends the measuring; the others take `others` seconds for a step.
    pub(crate) fn end_probe(&mut self, profile: &mut Profile, others: f64) {
        if let Some(probe) = self.probe.take() {
            let gets_samples = self.plan.rows[probe.device] > 0;
            probe.end(profile, gets_samples, others);
        }
    }

    /// `rows`, rounded up to what can be moved from one device to another.
    fn movable(&self, rows: usize) -> usize {
        rows.div_ceil(self.group).saturating_mul(self.group)
    }

    /// Rows of a full batch, `rows` of which (as [`Planner::movable`] gives them; fewer where the batch's end is among
    /// them) go from the device that has the most to `device`.
    fn lend(&self, device: usize, rows: usize) -> Vec<usize> {
        let mut groups: Vec<usize> = self.plan.rows.iter().map(|rows| rows.div_ceil(self.group)).collect();
        let lent = rows.div_ceil(self.group);
        if let Some(lender) = (0..groups.len()).filter(|&i| groups[i] >= lent).max_by_key(|&i| self.plan.rows[i]) {
            groups[lender] -= lent;
            groups[device] += lent;
        }
        in_rows(&groups, self.batch, self.group)
    }
}

fn as_shares(rows: &[usize]) -> Vec<f64> {
    rows.iter().map(|&rows| rows as f64).collect()
}

/// `shares`, but nothing for devices that are absent.
fn of_present(devices: &Devices<'_>, mut shares: Vec<f64>) -> Vec<f64> {
    let absent = devices.iter().zip(&mut shares).filter(|(device, _)| device.is_none());
    absent.for_each(|(_, share)| *share = 0.0);
    shares
}

#[cfg(test)]
mod tests;
