//! Learning rate by step.

use crate::error::{Error, Result};

/// How the learning rate goes after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decay {
    /// Stays.
    #[default]
    Constant,
    /// Falls along half a cosine to `floor`·base at the last step (Loshchilov and Hutter, SGDR, 2017, without restarts).
    Cosine,
}

/// A schedule: linear warm-up over `warmup` steps, then `decay`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Learning rate at the end of the warm-up.
    pub base: f64,
    /// Steps of linear warm-up; the first step already has base/warmup.
    pub warmup: u64,
    /// What follows.
    pub decay: Decay,
    /// The last rate as a fraction of the base (cosine).
    pub floor: f64,
}

impl Schedule {
    /// Always `base`.
    pub const fn constant(base: f64) -> Self {
        Self { base, warmup: 0, decay: Decay::Constant, floor: 0.0 }
    }

    /// Half a cosine from `base` to 0.
    pub const fn cosine(base: f64) -> Self {
        Self { base, warmup: 0, decay: Decay::Cosine, floor: 0.0 }
    }

    /// The same with `steps` of warm-up.
    pub const fn with_warmup(self, steps: u64) -> Self {
        Self { warmup: steps, ..self }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        if !(self.base.is_finite() && self.base > 0.0) {
            return Err(Error::invalid("optimizer.lr", format!("expected a finite number above 0, got {}", self.base)));
        }
        if !(0.0..=1.0).contains(&self.floor) {
            return Err(Error::invalid("schedule.floor", format!("expected a fraction in [0, 1], got {}", self.floor)));
        }
        Ok(())
    }

    /// The learning rate of `step` (from 0) in a run of `total` steps.
    pub fn rate(&self, step: u64, total: u64) -> f64 {
        if step < self.warmup {
            return self.base * (step + 1) as f64 / self.warmup as f64;
        }
        match self.decay {
            Decay::Constant => self.base,
            Decay::Cosine => {
                let span = total.saturating_sub(self.warmup).max(1);
                let progress = ((step - self.warmup) as f64 / span as f64).min(1.0);
                let fraction = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
                self.base * (self.floor + (1.0 - self.floor) * fraction)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_linear_and_ends_at_the_base() {
        let schedule = Schedule::constant(0.4).with_warmup(4);
        let rates: Vec<_> = (0..6).map(|s| schedule.rate(s, 6)).collect();
        assert_eq!(rates, [0.1, 0.2, 0.30000000000000004, 0.4, 0.4, 0.4]);
    }

    #[test]
    fn the_cosine_starts_at_the_base_halves_in_the_middle_and_ends_at_the_floor() {
        let schedule = Schedule { floor: 0.1, ..Schedule::cosine(1.0).with_warmup(10) };
        assert_eq!(schedule.rate(10, 110), 1.0);
        assert!((schedule.rate(60, 110) - 0.55).abs() < 1e-12);
        assert!((schedule.rate(110, 110) - 0.1).abs() < 1e-12);
        assert!((schedule.rate(500, 110) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn settings_are_checked() {
        assert!(Schedule::constant(0.0).validate().is_err());
        assert!(Schedule::constant(f64::NAN).validate().is_err());
        assert!(Schedule { floor: 2.0, ..Schedule::cosine(1.0) }.validate().is_err());
    }
}
