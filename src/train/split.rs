//! How many samples of a batch each device gets. A device's time for n samples is modelled as a + b·n from its own
//! measurements; shards are chosen so that all finish together, and changed only where that is worth it.

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
        let full = apportion(batch, &shares);
        Ok(Self { batch, adapts, shares, models: vec![SpeedModel::default(); devices], full })
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
        apportion(samples, &shares)
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
        self.full = apportion(self.batch, &shares);
    }

    /// Gives a device that has come back an equal share, to be measured with.
    pub fn admit(&mut self, index: usize, alive: &[bool]) {
        self.models[index] = SpeedModel::default();
        if !self.adapts {
            self.full = apportion(self.batch, &masked(self.shares.iter().copied(), alive));
            return;
        }
        let live = alive.iter().filter(|alive| **alive).count().max(1);
        let mut shares: Vec<f64> = self.full.iter().map(|&rows| rows as f64).collect();
        let others: f64 = shares.iter().sum();
        shares[index] = others / live.saturating_sub(1).max(1) as f64;
        self.full = apportion(self.batch, &shares);
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

    /// Rows of a full batch, `rows` of which go from the device that has the most to device `index`.
    pub fn lend(&self, index: usize, rows: usize) -> Vec<usize> {
        let mut shards = self.full.clone();
        if let Some(lender) = (0..shards.len()).filter(|&i| shards[i] > rows).max_by_key(|&i| shards[i]) {
            shards[lender] -= rows;
            shards[index] += rows;
        }
        shards
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
        let after = equal_finish(self.batch, &lines);
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

/// `samples` in proportion to `shares`, by largest remainder; of equal remainders the first device's goes first.
fn apportion(samples: usize, shares: &[f64]) -> Vec<usize> {
    let total: f64 = shares.iter().sum();
    if total <= 0.0 {
        return vec![0; shares.len()];
    }
    let exact: Vec<f64> = shares.iter().map(|s| s / total * samples as f64).collect();
    let mut rows: Vec<usize> = exact.iter().map(|e| e.floor() as usize).collect();
    let mut order: Vec<usize> = (0..shares.len()).filter(|&i| shares[i] > 0.0).collect();
    order.sort_by(|&i, &j| exact[j].fract().total_cmp(&exact[i].fract()));
    let left = samples - rows.iter().sum::<usize>().min(samples);
    order.iter().cycle().take(left).for_each(|&i| rows[i] += 1);
    rows
}

/// Shards for which the last device finishes earliest: rows are given one by one, in effect, to whoever would finish first.
/// A device whose fixed cost alone is over the common finish gets none.
fn equal_finish(samples: usize, lines: &[Option<(f64, f64)>]) -> Vec<usize> {
    let rows_by = |time: f64| {
        let rows = |line: &Option<(f64, f64)>| match line {
            Some((a, b)) if time > *a => ((time - a) / b).floor() as usize,
            _ => 0,
        };
        lines.iter().map(rows).collect::<Vec<_>>()
    };
    // The common finish, by bisection: the latest time by which not yet all samples are done.
    let slowest = |line: &(f64, f64)| line.0 + line.1 * samples as f64;
    let (mut low, mut high) = (0.0, lines.iter().flatten().map(slowest).fold(0.0, f64::max));
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if rows_by(middle).iter().sum::<usize>() < samples { low = middle } else { high = middle }
    }
    let mut rows = rows_by(low);
    for _ in rows.iter().sum::<usize>()..samples {
        let finish = |&i: &usize| lines[i].map_or(f64::INFINITY, |(a, b)| a + b * (rows[i] + 1) as f64);
        let first = (0..lines.len()).min_by(|i, j| finish(i).total_cmp(&finish(j))).expect("there are devices");
        rows[first] += 1;
    }
    rows
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
