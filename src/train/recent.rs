//! How long something takes of late.

use std::collections::VecDeque;

/// Measurements that count.
const KEPT: usize = 5;
/// Measurements before there is an answer.
const ENOUGH: usize = 3;

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
}
