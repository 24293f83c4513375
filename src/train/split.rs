//! How many samples of a batch each device gets. A device's time for n samples is modelled as a + b·n from its own
//! measurements; shards are chosen so that all finish together, and changed only where that is worth it.

use super::apportion::{apportion, equal_finish, in_rows, keeps_groups};
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
const HYSTERESIS: f64 = 0.05;

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
        Ok(Self { batch, group: 1, adapts, shares, models: vec![SpeedModel::default(); devices], full })
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
        if full.len() != self.full.len() || full.iter().sum::<usize>() != self.batch {
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

    /// Forgets what was measured of device `index` before it took `seconds` for `rows` rows.
    pub fn measure_anew(&mut self, index: usize, rows: usize, seconds: f64) {
        self.models[index] = SpeedModel::default();
        self.observe(index, rows, seconds);
    }

    /// Whether a device that has none can be given `rows` rows of a full batch to be measured with: only where the split
    /// follows measurements, and the device with the most rows has more than these.
    pub fn can_lend(&self, rows: usize) -> bool {
        self.adapts && self.full.iter().max().is_some_and(|most| *most > rows)
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
        if let Some(lender) = (0..groups.len()).filter(|&i| groups[i] > lent).max_by_key(|&i| self.full[i]) {
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
    /// `alive` tells which devices are there.
    pub fn refit(&mut self, alive: &[bool], least: f64) -> Option<Resplit> {
        if !self.adapts {
            return None;
        }
        let lines: Vec<Option<(f64, f64)>> =
            alive.iter().zip(&self.models).map(|(alive, m)| if *alive { m.line() } else { None }).collect();
        // A device that has rows but no model yet will have one soon.
        let unknown = lines.iter().zip(&self.full).any(|(line, &rows)| line.is_none() && rows > 0);
        if unknown || lines.iter().flatten().count() < 2 {
            return None;
        }
        let after = equal_finish(self.batch, self.group, &lines);
        let finish = |shards: &[usize]| {
            let time = |(line, &rows): (&Option<(f64, f64)>, &usize)| match line {
                Some((a, b)) if rows > 0 => a + b * rows as f64,
                _ => 0.0,
            };
            lines.iter().zip(shards).map(time).fold(0.0, f64::max)
        };
        let saved = finish(&self.full) - finish(&after);
        if saved < HYSTERESIS * finish(&self.full) || saved < least {
            return None;
        }
        let before = std::mem::replace(&mut self.full, after.clone());
        Some(Resplit { before, after })
    }
}

/// `shares` where `alive`, else 0.
fn masked(shares: impl Iterator<Item = f64>, alive: &[bool]) -> Vec<f64> {
    shares.zip(alive).map(|(share, &alive)| if alive { share } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitter(batch: usize, devices: usize) -> Splitter {
        Splitter::new(&Split::Speed, batch, devices, false).unwrap()
    }

    fn measured(batch: usize, lines: &[(f64, f64)]) -> Splitter {
        let mut splitter = splitter(batch, lines.len());
        for (index, (a, b)) in lines.iter().enumerate() {
            for rows in [4, 8, 16, 32] {
                splitter.observe(index, rows, a + b * rows as f64);
            }
        }
        splitter
    }

    #[test]
    fn nine_samples_over_four_equal_devices_are_3_2_2_2() {
        assert_eq!(splitter(9, 4).full(), [3, 2, 2, 2]);
    }

    #[test]
    fn two_samples_over_four_devices_leave_two_idle() {
        assert_eq!(splitter(2, 4).full(), [1, 1, 0, 0]);
        assert_eq!(splitter(64, 4).shards(2).iter().sum::<usize>(), 2);
    }

    #[test]
    fn weights_are_proportions() {
        let splitter = Splitter::new(&Split::Weights(vec![1.0, 0.0, 3.0]), 10, 3, false).unwrap();
        assert_eq!(splitter.full(), [3, 0, 7]);
        assert!(Splitter::new(&Split::Weights(vec![1.0]), 10, 3, false).is_err());
        assert!(Split::Weights(vec![0.0, 0.0]).validate().is_err());
        assert!(Split::Weights(vec![1.0, f64::NAN]).validate().is_err());
    }

    #[test]
    fn shards_follow_the_speeds() {
        for (lines, expected) in [
            (vec![(0.0, 1.0), (0.0, 1.0)], vec![32, 32]),
            (vec![(0.0, 1.0), (0.0, 2.0)], vec![43, 21]),
            (vec![(0.0, 1.0), (0.0, 6.0)], vec![55, 9]),
            (vec![(0.0, 1.0), (0.0, 2.0), (0.0, 4.0)], vec![37, 18, 9]),
        ] {
            let mut splitter = measured(64, &lines);
            splitter.refit(&vec![true; lines.len()], 0.0);
            assert_eq!(splitter.full(), expected, "{lines:?}");
        }
    }

    #[test]
    fn groups_stay_whole_whatever_happens_to_the_devices() {
        let mut splitter = measured(100, &[(0.0, 1.0), (0.0, 1.0), (0.0, 2.0)]).in_groups(8);
        let whole = |change: &str, splitter: &mut Splitter| {
            for samples in [100, 99, 50, 7] {
                let shards = splitter.shards(samples);
                assert_eq!(shards.iter().sum::<usize>(), samples, "{change}");
                assert!(keeps_groups(&shards, 8), "{change}: {shards:?}");
            }
        };
        whole("start", &mut splitter);
        assert_eq!(splitter.refit(&[true; 3], 0.0).unwrap().after, [48, 40, 12]);
        whole("refit", &mut splitter);
        splitter.remove(1, &[true; 3]);
        whole("removed", &mut splitter);
        splitter.admit(1, &[true; 3]);
        whole("admitted", &mut splitter);
        splitter.restore(vec![8, 92, 0]).unwrap();
        assert_eq!((splitter.movable(6), splitter.movable(9)), (8, 16));
        assert_eq!(splitter.lend(2, 8), [8, 88, 4]);
        assert_eq!(splitter.lend(0, 16), [24, 76, 0]);
        let error = splitter.restore(vec![50, 0, 50]).unwrap_err().to_string();
        assert!(error.contains("cuts the groups of 8 samples"), "{error}");
    }

    #[test]
    fn a_device_that_would_slow_the_step_gets_nothing() {
        let mut splitter = measured(64, &[(0.0, 1.0), (100.0, 1.0)]);
        assert_eq!(splitter.refit(&[true, true], 0.0).unwrap().after, [64, 0]);
    }

    #[test]
    fn a_gain_that_does_not_pay_for_the_change_changes_nothing() {
        let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 3.0)]);
        assert_eq!(splitter.refit(&[true, true], 50.0), None); // 96 s become 48 s
        assert!(splitter.refit(&[true, true], 40.0).is_some());
    }

    #[test]
    fn a_small_gain_changes_nothing() {
        let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 1.05)]);
        assert_eq!(splitter.refit(&[true, true], 0.0), None);
        assert_eq!(splitter.full(), [32, 32]);
    }

    #[test]
    fn deterministic_and_even_splits_stay() {
        for (split, deterministic) in [(Split::Speed, true), (Split::Even, false)] {
            let mut splitter = Splitter::new(&split, 64, 2, deterministic).unwrap();
            (0..5).for_each(|_| {
                splitter.observe(0, 32, 1.0);
                splitter.observe(1, 32, 9.0);
            });
            assert_eq!(splitter.refit(&[true, true], 0.0), None);
        }
    }

    #[test]
    fn a_removed_devices_rows_go_to_the_others() {
        let mut splitter = measured(64, &[(0.0, 1.0), (0.0, 1.0), (0.0, 2.0)]);
        splitter.refit(&[true; 3], 0.0);
        splitter.remove(0, &[true; 3]);
        assert_eq!(splitter.full()[0], 0);
        assert_eq!(splitter.full().iter().sum::<usize>(), 64);
    }

    #[test]
    fn idle_devices_take_over_when_the_only_busy_one_goes() {
        let mut splitter = Splitter::new(&Split::Weights(vec![1.0, 0.0, 0.0]), 9, 3, false).unwrap();
        splitter.remove(0, &[true; 3]);
        assert_eq!(splitter.full(), [0, 5, 4]);
    }

    #[test]
    fn fixed_and_proportional_costs_are_told_apart() {
        let splitter = measured(64, &[(3.0, 0.5), (1.0, 2.0)]);
        assert!((splitter.predict(0, 10).unwrap() - 8.0).abs() < 1e-9);
        assert!((splitter.predict(1, 10).unwrap() - 21.0).abs() < 1e-9);
    }
}
