//! What measurements say: of the time that a device takes for so many samples, and of how long something takes lately.

use std::collections::VecDeque;

/// Seconds for n samples, a + b·n, as (a, b).
pub(crate) type Line = (f64, f64);

/// Weight that a measurement keeps when the next one comes.
const MEMORY: f64 = 0.9;
/// Measurements before there is an answer.
const ENOUGH: usize = 3;
/// A measurement this far off the line, as a fraction of what was expected, is a surprise; [`ENOUGH`] of them in a row
/// mean that the device is not as fast as it was, and what was measured before is forgotten.
const SURPRISE: f64 = 0.3;
/// Measurements of which the median is taken.
const KEPT: usize = 5;

/// Seconds for n samples ≈ a + b·n: a least-squares line over measurements that fade with age.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SpeedModel {
    measurements: usize,
    surprises: usize,
    /// Faded sums of 1, n, n², t, n·t.
    sums: [f64; 5],
}

impl SpeedModel {
    pub(super) fn observe(&mut self, rows: usize, seconds: f64) {
        let n = rows as f64;
        let surprising = self.line().is_some_and(|(a, b)| (seconds - (a + b * n)).abs() > SURPRISE * (a + b * n));
        self.surprises = if surprising { self.surprises + 1 } else { 0 };
        if self.surprises >= ENOUGH {
            *self = Self::default();
        }
        let terms = [1.0, n, n * n, seconds, n * seconds];
        self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = MEMORY * *sum + term);
        self.measurements += 1;
    }

    /// The line, or `None` before there are enough measurements. With one size alone there is no telling a from b: then
    /// all is taken as proportional.
    pub(super) fn line(&self) -> Option<Line> {
        let [count, n, nn, t, nt] = self.sums;
        if self.measurements < ENOUGH || n <= 0.0 {
            return None;
        }
        let proportional = (0.0, t / n);
        let variance = count * nn - n * n;
        if variance <= 1e-3 * n * n {
            return Some(proportional);
        }
        let b = (count * nt - n * t) / variance;
        let a = (t - b * n) / count;
        Some(if a >= 0.0 && b > 0.0 { (a, b) } else { proportional })
    }
}

/// The median of the last few measurements, so that one that was disturbed does not count.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recent(VecDeque<f64>);

impl Recent {
    pub(super) fn add(&mut self, seconds: f64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(seconds);
    }

    /// The median; `None` before there are enough measurements.
    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.0.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        (sorted.len() >= ENOUGH).then(|| sorted[sorted.len() / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_measurement_does_not_count_and_old_ones_are_forgotten() {
        let mut recent = Recent::default();
        let medians: Vec<Option<f64>> = [3.0, 1.0, 90.0, 2.0, 2.0, 7.0, 7.0, 7.0]
            .into_iter()
            .map(|seconds| {
                recent.add(seconds);
                recent.median()
            })
            .collect();
        let last = [Some(3.0), Some(3.0), Some(2.0), Some(2.0), Some(7.0), Some(7.0)];
        assert_eq!((&medians[..2], &medians[2..]), (&[None, None][..], &last[..]));
    }

    #[test]
    fn fixed_and_proportional_costs_are_told_apart() {
        let mut speed = SpeedModel::default();
        [4, 8, 16, 32].iter().for_each(|&rows| speed.observe(rows, 3.0 + 0.5 * rows as f64));
        let (a, b) = speed.line().unwrap();
        assert!((a - 3.0).abs() < 1e-9 && (b - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_device_that_has_changed_is_measured_anew() {
        let mut speed = SpeedModel::default();
        (0..9).for_each(|_| speed.observe(8, 8.0));
        (0..2).for_each(|_| speed.observe(8, 24.0));
        assert!(speed.line().is_some(), "two may be disturbed");
        speed.observe(8, 24.0);
        assert_eq!(speed.line(), None);
        (0..2).for_each(|_| speed.observe(8, 24.0));
        assert!(speed.line().is_some_and(|(a, b)| a == 0.0 && (b - 3.0).abs() < 1e-9));
    }
}
