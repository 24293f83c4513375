//! What a learning rate that falls on plateaus of the loss goes by.

use serde::{Deserialize, Serialize};

use super::schedule::{Decay, Schedule};

/// What [`Decay::Plateau`] goes by; part of a run's state.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Plateau {
    /// The best loss of an epoch.
    best: Option<f64>,
    /// Epochs since then, or since the last reduction.
    waited: u64,
    /// How often the rate has been reduced.
    pub reductions: u32,
}

impl Plateau {
    /// Epochs since the best loss, or since the last reduction.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Takes note of an epoch's `loss`. It matters to a schedule that goes by it.
    pub fn observe(&mut self, schedule: &Schedule, loss: f64) {
        let Decay::Plateau { patience, threshold, .. } = schedule.decay else { return };
        if loss.is_finite() && self.best.is_none_or(|best| loss < best * (1.0 - threshold)) {
            self.best = Some(loss);
            self.waited = 0;
            return;
        }
        self.waited += 1;
        if self.waited > patience {
            self.waited = 0;
            self.reductions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::At;

    #[test]
    fn a_plateau_reduces_after_more_than_patience_epochs() {
        let decay = Decay::Plateau { factor: 0.5, patience: 1, threshold: 0.1 };
        let schedule = Schedule { floor: 0.2, ..Schedule::new(4.0, decay) };
        let mut plateau = Plateau::default();
        let mut after = |loss| {
            plateau.observe(&schedule, loss);
            schedule.rate(&At { reductions: plateau.reductions, ..At::default() })
        };
        // 0.95 is not a tenth better than 1; 0.8 is. NaN never is.
        let losses = [1.0, 0.95, 0.8, 0.8, 0.8, f64::NAN, f64::INFINITY, 0.5, 0.5, 0.5, 0.5, 0.5];
        assert_eq!(losses.map(&mut after), [4.0, 4.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.8, 0.8, 0.8]);
        let mut other = Plateau::default();
        (0..9).for_each(|_| other.observe(&Schedule::constant(1.0), 1.0));
        assert_eq!(other, Plateau::default(), "other schedules do not go by it");
    }
}
