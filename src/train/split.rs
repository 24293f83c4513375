//! How many samples of a batch each device gets. A device's time for n samples is modelled as a + b·n from its own
//! measurements; shards are chosen so that all finish together, and changed only where that is worth it. Where the exchange of
//! gradients and weights costs more than the others' help saves, the lead gets all.

use super::apportion::{apportion, equal_finish, in_rows, keeps_groups};
use super::rest::{Rest, Sharing, exchanges};
use super::speed::SpeedModel;
use crate::error::{Error, Result};

/// How a batch is divided.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Split {
    /// By measured speed.
    #[default]
    Speed,
    /// Equally.
    Even,
    /// In proportion to these weights, one a device.
    Weights(Vec<f64>),
}

impl Split {
    /// Checks the weights.
    ///
    /// # Errors
    /// When one is negative or not finite, or all are zero.
    pub fn validate(&self) -> Result<()> {
        let Self::Weights(weights) = self else { return Ok(()) };
        let bad = weights.iter().any(|w| !w.is_finite() || *w < 0.0) || weights.iter().sum::<f64>() <= 0.0;
        if bad {
            let message = format!("expected weights of 0 or more that are not all 0, got {weights:?}");
            return Err(Error::invalid("train.split", message));
        }
        Ok(())
    }
}

/// Predicted gain in step time below which the split stays as it is.
const HYSTERESIS: f64 = 0.03;

/// A change of the split.
#[derive(Debug, Clone, PartialEq)]
pub struct Resplit {
    /// Rows a device had of a full batch.
    pub before: Vec<usize>,
    /// Rows it gets from now on.
    pub after: Vec<usize>,
}

/// Divides batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Splitter {
    batch: usize,
    /// Consecutive samples that stay on one device.
    group: usize,
    adapts: bool,
    /// Proportions that a split which does not adapt keeps.
    shares: Vec<f64>,
    models: Vec<SpeedModel>,
    rest: Rest,
    /// Rows of a full batch.
    full: Vec<usize>,
}

impl Splitter {
    /// A splitter of full batches of `batch` samples over `devices` devices; it `adapts` under [`Split::Speed`] only.
    ///
    /// # Errors
    /// When the weights are not one a device.
    pub fn new(split: &Split, batch: usize, devices: usize, deterministic: bool) -> Result<Self> {
        let shares = match split {
            Split::Weights(weights) if weights.len() == devices => weights.clone(),
            Split::Weights(weights) => {
                let message = format!("expected {devices} weights, one a device, got {}", weights.len());
                return Err(Error::invalid("train.split", message));
            }
            Split::Speed | Split::Even => vec![1.0; devices],
        };
        let adapts = *split == Split::Speed && !deterministic;
        let full = apportion(batch, 1, &shares);
        Ok(Self {
            batch,
            group: 1,
            adapts,
            shares,
            models: vec![SpeedModel::default(); devices],
            rest: Rest::default(),
            full,
        })
    }

    /// The same where each `group` consecutive samples of a batch must stay on one device.
    pub fn in_groups(mut self, group: usize) -> Self {
        self.group = group;
        self.full = apportion(self.batch, group, &self.shares);
        self
    }

    /// Samples of a full batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Rows of a full batch, by device.
    pub fn full(&self) -> &[usize] {
        &self.full
    }

    /// Rows of a batch of `samples`, by device: contiguous and in device order.
    pub fn shards(&self, samples: usize) -> Vec<usize> {
        if samples == self.batch {
            return self.full.clone();
        }
        let shares: Vec<f64> = self.full.iter().map(|&rows| rows as f64).collect();
        apportion(samples, self.group, &shares)
    }

    /// Takes over a split that a checkpoint holds.
    ///
    /// # Errors
    /// When it is not one of this batch over this many devices.
    pub fn restore(&mut self, full: Vec<usize>) -> Result<()> {
        let sum = full.iter().try_fold(0_usize, |sum, rows| sum.checked_add(*rows));
        if full.len() != self.full.len() || sum != Some(self.batch) {
            let message = format!(
                "the saved split {full:?} is not one of {} samples over {} devices",
                self.batch,
                self.full.len()
            );
            return Err(Error::invalid("split", message));
        }
        if !keeps_groups(&full, self.group) {
            let message =
                format!("the saved split {full:?} cuts the groups of {} samples that batch norm takes", self.group);
            return Err(Error::invalid("split", message));
        }
        self.full = full;
        Ok(())
    }

    /// Takes device `index` out; its rows go to those that are still `alive`.
    pub fn remove(&mut self, index: usize, alive: &[bool]) {
        self.models[index] = SpeedModel::default();
        let alive: Vec<bool> = alive.iter().enumerate().map(|(i, alive)| *alive && i != index).collect();
        let mut shares = masked(self.full.iter().map(|&rows| rows as f64), &alive);
        if shares.iter().sum::<f64>() == 0.0 {
            shares = masked(std::iter::repeat(1.0), &alive);
        }
        self.full = apportion(self.batch, self.group, &shares);
    }

    /// Gives a device that has come back an equal share, to be measured with.
    pub fn admit(&mut self, index: usize, alive: &[bool]) {
        self.models[index] = SpeedModel::default();
        if !self.adapts {
            self.full = apportion(self.batch, self.group, &masked(self.shares.iter().copied(), alive));
            return;
        }
        let live = alive.iter().filter(|alive| **alive).count().max(1);
        let mut shares: Vec<f64> = self.full.iter().map(|&rows| rows as f64).collect();
        let others: f64 = shares.iter().sum();
        shares[index] = others / live.saturating_sub(1).max(1) as f64;
        self.full = apportion(self.batch, self.group, &shares);
    }

    /// Notes that device `index` took `seconds` for `rows` rows.
    pub fn observe(&mut self, index: usize, rows: usize, seconds: f64) {
        self.models[index].observe(rows, seconds);
    }

    /// Notes that a step of a full batch took `seconds` beside the longest of its devices' times, of which `lead` leads.
    pub fn observe_rest(&mut self, lead: usize, seconds: f64) {
        self.rest.observe(&self.full, lead, seconds);
    }

    /// Forgets what steps took beside the devices' times: another device leads.
    pub fn forget_rest(&mut self) {
        self.rest = Rest::default();
    }

    /// Forgets what was measured of device `index` before it took `seconds` for `rows` rows.
    pub fn measure_anew(&mut self, index: usize, rows: usize, seconds: f64) {
        self.models[index] = SpeedModel::default();
        self.observe(index, rows, seconds);
    }

    /// Whether the division follows measurements.
    pub fn adapts(&self) -> bool {
        self.adapts
    }

    /// Whether a device that has none can be given `rows` rows of a full batch to be measured with: only where the split
    /// follows measurements, and the device with the most rows has these.
    pub fn can_lend(&self, rows: usize) -> bool {
        self.adapts && self.full.iter().max().is_some_and(|most| *most >= rows.min(self.batch))
    }

    /// `rows`, rounded up to what can be moved from one device to another.
    pub fn movable(&self, rows: usize) -> usize {
        rows.div_ceil(self.group).saturating_mul(self.group)
    }

    /// Rows of a full batch, `rows` of which (as [`Splitter::movable`] gives them; fewer where the batch's end is among
    /// them) go from the device that has the most to device `index`.
    pub fn lend(&self, index: usize, rows: usize) -> Vec<usize> {
        let mut groups: Vec<usize> = self.full.iter().map(|full| full.div_ceil(self.group)).collect();
        let lent = rows.div_ceil(self.group);
        if let Some(lender) = (0..groups.len()).filter(|&i| groups[i] >= lent).max_by_key(|&i| self.full[i]) {
            groups[lender] -= lent;
            groups[index] += lent;
        }
        in_rows(&groups, self.batch, self.group)
    }

    /// Whether device `index` gets nothing although nobody said so.
    pub fn leaves_out(&self, index: usize) -> bool {
        self.full[index] == 0 && self.shares[index] > 0.0
    }

    /// Device `index`'s (a, b): it takes a + b·n seconds for n rows; `None` before it was measured often enough.
    pub fn cost(&self, index: usize) -> Option<(f64, f64)> {
        self.models[index].line()
    }

    /// Seconds after which the last device is expected to be done with its rows of a full batch.
    pub fn finish(&self) -> f64 {
        let times = self.full.iter().enumerate().filter_map(|(index, &rows)| self.predict(index, rows));
        times.fold(0.0, f64::max)
    }

    /// Seconds that device `index` is expected to take for `rows` rows.
    pub fn predict(&self, index: usize, rows: usize) -> Option<f64> {
        self.models[index].line().map(|(a, b)| if rows == 0 { 0.0 } else { a + b * rows as f64 })
    }

    /// Chooses shards anew where that makes the step faster by more than the hysteresis and saves `least` seconds a step.
    /// `alive` tells which devices are there, of which `lead` leads.
    pub fn refit(&mut self, alive: &[bool], lead: usize, least: f64) -> Option<Resplit> {
        if !self.adapts {
            return None;
        }
        let lines = self.lines(alive);
        // A device that has rows but no model yet will have one soon.
        let unknown = lines.iter().zip(&self.full).any(|(line, &rows)| line.is_none() && rows > 0);
        if unknown || lines.iter().flatten().count() < 2 {
            return None;
        }
        let step = |shards: &[usize]| finish(&lines, shards) + self.rest.seconds(shards, lead);
        let mut after = equal_finish(self.batch, self.group, &lines);
        if let Some(alone) = self.alone(&lines, lead)
            && step(&alone) < step(&after)
        {
            after = alone;
        }
        let (now, then) = (step(&self.full), step(&after));
        if now - then < HYSTERESIS * now || now - then < least {
            return None;
        }
        let before = std::mem::replace(&mut self.full, after.clone());
        Some(Resplit { before, after })
    }

    /// A device, not `lead`, that would do a batch alone sooner than all together could, by more than the hysteresis, with the
    /// seconds of a step now and then. It must lead for that: [`Splitter::refit`] decides under its lead. `may` says who may.
    pub fn soloist(&self, alive: &[bool], lead: usize, may: impl Fn(usize) -> bool) -> Option<(usize, f64, f64)> {
        let lines = self.lines(alive);
        let step = |shards: &[usize]| finish(&lines, shards) + self.rest.seconds(shards, lead);
        let now = step(&self.full).min(step(&equal_finish(self.batch, self.group, &lines)));
        let alone =
            |index: usize| self.predict(index, self.batch).filter(|_| alive[index]).map(|then| (index, now, then));
        let candidates = (0..lines.len()).filter(|&index| index != lead && may(index)).filter_map(alone);
        candidates.min_by(|a, b| a.2.total_cmp(&b.2)).filter(|(_, now, then)| *then < (1.0 - HYSTERESIS) * now)
    }

    /// What sharing would cost, where `lead` does the batch alone and others could help.
    pub fn sharing(&self, alive: &[bool], lead: usize) -> Option<Sharing> {
        let lines = self.lines(alive);
        let alone = self.alone(&lines, lead).filter(|alone| *alone == self.full)?;
        let together = equal_finish(self.batch, self.group, &lines);
        let exchange = self.rest.exchange().filter(|_| exchanges(&together, lead))?;
        let step = |shards: &[usize]| finish(&lines, shards) + self.rest.seconds(shards, lead);
        Some(Sharing { together: step(&together), exchange, alone: step(&alone) })
    }

    /// The models of those that are `alive`, as far as there are any.
    fn lines(&self, alive: &[bool]) -> Vec<Option<(f64, f64)>> {
        alive.iter().zip(&self.models).map(|(alive, m)| if *alive { m.line() } else { None }).collect()
    }

    /// All rows for the lead, whose speed is known.
    fn alone(&self, lines: &[Option<(f64, f64)>], lead: usize) -> Option<Vec<usize>> {
        lines[lead].map(|_| (0..lines.len()).map(|index| if index == lead { self.batch } else { 0 }).collect())
    }
}

/// Seconds after which the last device is done.
fn finish(lines: &[Option<(f64, f64)>], shards: &[usize]) -> f64 {
    let time = |(line, &rows): (&Option<(f64, f64)>, &usize)| match line {
        Some((a, b)) if rows > 0 => a + b * rows as f64,
        _ => 0.0,
    };
    lines.iter().zip(shards).map(time).fold(0.0, f64::max)
}

/// `shares` where `alive`, else 0.
fn masked(shares: impl Iterator<Item = f64>, alive: &[bool]) -> Vec<f64> {
    shares.zip(alive).map(|(share, &alive)| if alive { share } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests;
