//! Learning rate by step: a linear warm-up, then a decay.

use std::f64::consts::PI;

use super::span::{At, Span};
use crate::error::{Error, Result};

/// How the learning rate goes after the warm-up, over the n steps that are left then. t counts them from 0, so the last
/// step is t = n − 1. As with PyTorch's schedulers of the same names over n steps, the end of `Linear`, `Cosine` and of
/// each period of `CosineRestarts` is at t = n, where the next step would be; `OneCycle` ends with the last step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Decay {
    /// Stays.
    #[default]
    Constant,
    /// Falls in a straight line towards `floor`·base at t = n.
    Linear,
    /// Falls along half a cosine towards `floor`·base at t = n (Loshchilov and Hutter, SGDR, 2017, without restarts).
    Cosine,
    /// The same over `period`, then again from the base over a period `factor` times as long, and so on (SGDR).
    CosineRestarts {
        /// Length of the first fall.
        period: Span,
        /// What each period is longer by than the one before; at least 1.
        factor: f64,
    },
    /// Base·γ^⌊t/every⌋, at least `floor`·base.
    Step {
        /// Steps between two falls.
        every: Span,
        /// γ.
        gamma: f64,
    },
    /// Base·γ^(t/every), at least `floor`·base: the same fall, spread over the steps.
    Exponential {
        /// Steps in which the rate falls to γ of what it was.
        every: Span,
        /// γ.
        gamma: f64,
    },
    /// Rises from base/`div` to the base and falls to base/(`div`·`final_div`), each along half a cosine (Smith, "A
    /// disciplined approach to neural network hyper-parameters", 2018, in the form of PyTorch's `OneCycleLR`; momentum
    /// stays).
    OneCycle {
        /// The part of the steps in which it rises.
        rise: f64,
        /// The base over the first rate.
        div: f64,
        /// The first rate over the last.
        final_div: f64,
    },
    /// Multiplied by `factor` after more than `patience` epochs in a row whose loss was not better than the best so
    /// far, at least `floor`·base. As PyTorch's `ReduceLROnPlateau`.
    Plateau {
        /// What the rate is multiplied by.
        factor: f64,
        /// Epochs without a better loss that are put up with.
        patience: u64,
        /// The part of the best loss that a better one is below it by.
        threshold: f64,
    },
}

/// A schedule: linear warm-up over `warmup`, then `decay`.
///
/// ```
/// # use everygpu::prelude::*;
/// let schedule = Schedule::cosine(5e-3).with_warmup(20); // up to 0.005 in 20 steps, then down along half a cosine
/// # assert!(schedule.validate().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Learning rate at the end of the warm-up.
    pub base: f64,
    /// Linear warm-up; with n steps of it, the first step already has base/n.
    pub warmup: Span,
    /// What follows.
    pub decay: Decay,
    /// The least rate as a fraction of the base, where the decay falls to one.
    pub floor: f64,
}

impl Schedule {
    /// Always `base`.
    pub const fn constant(base: f64) -> Self {
        Self::new(base, Decay::Constant)
    }

    /// Half a cosine from `base` to 0.
    pub const fn cosine(base: f64) -> Self {
        Self::new(base, Decay::Cosine)
    }

    /// `decay` from `base` to 0, without a warm-up.
    pub const fn new(base: f64, decay: Decay) -> Self {
        Self { base, warmup: Span::Steps(0), decay, floor: 0.0 }
    }

    /// The same with `steps` of warm-up.
    pub const fn with_warmup(self, steps: u64) -> Self {
        Self { warmup: Span::Steps(steps), ..self }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        let check = |name: &str, value: f64, ok: bool, expected: &str| match ok {
            true => Ok(()),
            false => Err(Error::invalid(name, format!("expected {expected}, got {value:?}"))),
        };
        let above = |name: &str, v: f64, least: f64| {
            check(name, v, v.is_finite() && v > least, &format!("a finite number above {least}"))
        };
        let fraction = |name: &str, v: f64| check(name, v, v > 0.0 && v <= 1.0, "a number above 0 and up to 1");
        let span = |name: &str, span: Span, may_be_zero: bool| {
            let ok = span.is_valid() && (may_be_zero || !span.is_zero());
            let message = || format!("expected steps, epochs or a fraction of the run of at most 1, got {span:?}");
            if ok { Ok(()) } else { Err(Error::invalid(name, message())) }
        };
        // On the devices it is a float32, and what is below the normal ones may be taken for 0.
        let held = (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&self.base);
        check("optimizer.lr", self.base, held, &format!("a number from {:e} to {:e}", f32::MIN_POSITIVE, f32::MAX))?;
        check("schedule.floor", self.floor, (0.0..=1.0).contains(&self.floor), "a fraction in [0, 1]")?;
        span("schedule.warmup", self.warmup, true)?;
        match self.decay {
            Decay::Constant | Decay::Linear | Decay::Cosine => Ok(()),
            Decay::CosineRestarts { period, factor } => {
                span("schedule.period", period, false)?;
                check("schedule.factor", factor, factor.is_finite() && factor >= 1.0, "a finite number, 1 or more")
            }
            Decay::Step { every, gamma } | Decay::Exponential { every, gamma } => {
                span("schedule.every", every, false)?;
                fraction("schedule.gamma", gamma)
            }
            Decay::OneCycle { rise, div, final_div } => {
                check("schedule.rise", rise, rise > 0.0 && rise < 1.0, "a number above 0 and below 1")?;
                above("schedule.div", div, 0.0)?;
                above("schedule.final_div", final_div, 0.0)
            }
            Decay::Plateau { factor, threshold, .. } => {
                check("schedule.factor", factor, factor > 0.0 && factor < 1.0, "a number above 0 and below 1")?;
                check("schedule.threshold", threshold, (0.0..1.0).contains(&threshold), "a number in [0, 1)")
            }
        }
    }

    /// The learning rate of a step.
    pub fn rate(&self, at: &At) -> f64 {
        let warmup = self.warmup.steps(at);
        if at.step < warmup {
            return self.base * (at.step + 1) as f64 / warmup as f64;
        }
        let t = (at.step - warmup) as f64;
        let left = at.total.saturating_sub(warmup).max(1) as f64;
        let progress = (t / left).min(1.0);
        // Of the way from the base to the floor.
        let down = |fraction: f64| self.base * (self.floor + (1.0 - self.floor) * fraction);
        let at_least_floor = |factor: f64| self.base * factor.max(self.floor);
        let periods = |every: Span| t / every.steps(at).max(1) as f64;
        match self.decay {
            Decay::Constant => self.base,
            Decay::Linear => down(1.0 - progress),
            Decay::Cosine => down(half_cosine(progress)),
            Decay::CosineRestarts { period, factor } => {
                down(half_cosine(since_restart(t, period.steps(at).max(1) as f64, factor)))
            }
            Decay::Step { every, gamma } => at_least_floor(gamma.powf(periods(every).floor())),
            Decay::Exponential { every, gamma } => at_least_floor(gamma.powf(periods(every))),
            Decay::OneCycle { rise, div, final_div } => self.base * one_cycle(t, left, rise, div, final_div),
            Decay::Plateau { factor, .. } => at_least_floor(factor.powf(f64::from(at.reductions))),
        }
    }
}

/// From 1 at 0 to 0 at 1.
fn half_cosine(progress: f64) -> f64 {
    0.5 * (1.0 + (PI * progress).cos())
}

/// How much of its period is over at step `t`, periods becoming longer by `factor`.
fn since_restart(mut t: f64, mut period: f64, factor: f64) -> f64 {
    if factor == 1.0 {
        return (t % period) / period;
    }
    while t >= period {
        t -= period;
        period *= factor;
    }
    t / period
}

/// The rate at step `t` of `total`, as a fraction of the highest.
fn one_cycle(t: f64, total: f64, rise: f64, div: f64, final_div: f64) -> f64 {
    let between = |from: f64, to: f64, progress: f64| to + (from - to) * half_cosine(progress.clamp(0.0, 1.0));
    let first = 1.0 / div;
    let top = (rise * total - 1.0).max(0.0);
    if t < top {
        return between(first, 1.0, t / top);
    }
    between(1.0, first / final_div, (t - top) / (total - 1.0 - top).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates of these steps in a run of `total` steps, 10 an epoch.
    fn rates(schedule: &Schedule, total: u64, steps: &[u64]) -> Vec<f64> {
        schedule.validate().unwrap();
        let at = |&step| At { step, total, steps_per_epoch: 10, reductions: 0 };
        steps.iter().map(|step| schedule.rate(&at(step))).collect()
    }

    #[track_caller]
    fn close(got: &[f64], expected: &[f64]) {
        let same = got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(same, "{got:?}, expected {expected:?}");
    }

    #[test]
    fn warm_up_is_linear_and_ends_at_the_base() {
        let schedule = Schedule::constant(0.4).with_warmup(4);
        close(&rates(&schedule, 40, &[0, 1, 2, 3, 4, 5]), &[0.1, 0.2, 0.3, 0.4, 0.4, 0.4]);
        let fraction = Schedule { warmup: Span::Fraction(0.1), ..schedule };
        assert_eq!(rates(&fraction, 40, &[0, 3, 4]), rates(&schedule, 40, &[0, 3, 4]));
        let epochs = Schedule { warmup: Span::Epochs(0.4), ..schedule };
        assert_eq!(rates(&epochs, 999, &[0, 3, 4]), rates(&schedule, 999, &[0, 3, 4]));
    }

    #[test]
    fn the_cosine_starts_at_the_base_halves_in_the_middle_and_ends_at_the_floor() {
        let schedule = Schedule { floor: 0.1, ..Schedule::cosine(1.0).with_warmup(10) };
        close(&rates(&schedule, 110, &[10, 60, 110, 500]), &[1.0, 0.55, 0.1, 0.1]);
    }

    #[test]
    fn the_line_ends_at_the_floor() {
        let schedule = Schedule { floor: 0.2, ..Schedule::new(2.0, Decay::Linear).with_warmup(10) };
        close(&rates(&schedule, 110, &[9, 10, 35, 60, 110, 200]), &[2.0, 2.0, 1.6, 1.2, 0.4, 0.4]);
    }

    #[test]
    fn a_cosine_restarts_after_each_period() {
        let equal = Decay::CosineRestarts { period: Span::Steps(4), factor: 1.0 };
        let [a, b] = [0.5 + 0.5_f64.sqrt() / 2.0, 0.5 - 0.5_f64.sqrt() / 2.0];
        close(&rates(&Schedule::new(1.0, equal), 9, &[0, 1, 2, 3, 4, 7, 8]), &[1.0, a, 0.5, b, 1.0, b, 1.0]);
        // Periods of 4, 8 and 16 steps.
        let longer = Decay::CosineRestarts { period: Span::Fraction(0.1), factor: 2.0 };
        let schedule = Schedule { floor: 0.5, ..Schedule::new(1.0, longer) };
        close(&rates(&schedule, 40, &[2, 4, 8, 12, 20, 28]), &[0.75, 1.0, 0.75, 1.0, 0.75, 1.0]);
    }

    #[test]
    fn steps_and_exponentials_fall_by_gamma() {
        let schedule = Schedule::new(8.0, Decay::Step { every: Span::Epochs(1.0), gamma: 0.5 });
        close(&rates(&schedule, 40, &[0, 9, 10, 19, 20, 30]), &[8.0, 8.0, 4.0, 4.0, 2.0, 1.0]);
        close(&rates(&Schedule { floor: 0.25, ..schedule }, 40, &[20, 30]), &[2.0, 2.0]);
        let schedule = Schedule::new(8.0, Decay::Exponential { every: Span::Epochs(1.0), gamma: 0.25 });
        close(&rates(&schedule, 40, &[0, 5, 10, 20]), &[8.0, 4.0, 2.0, 0.5]);
        let schedule = Schedule::new(8.0, Decay::Exponential { every: Span::Steps(1), gamma: 0.5 }).with_warmup(2);
        close(&rates(&schedule, 40, &[2, 3, 4]), &[8.0, 4.0, 2.0]);
    }

    /// The values of PyTorch's OneCycleLR: phases end at steps 0.3·11 − 1 and 10.
    #[test]
    fn one_cycle_rises_and_falls() {
        let schedule = Schedule::new(1.0, Decay::OneCycle { rise: 3.0 / 11.0, div: 25.0, final_div: 100.0 });
        close(&rates(&schedule, 11, &[0, 1, 2, 6, 10, 99]), &[0.04, 0.52, 1.0, 0.5002, 0.0004, 0.0004]);
        // With fewer steps than it takes to rise, it only falls.
        assert!(rates(&schedule, 2, &[0, 1]).iter().all(|r| r.is_finite() && *r <= 1.0));
        assert_eq!(rates(&schedule, 1, &[0]), [1.0]);
    }

    /// PyTorch's values in the first and the last two steps of 10, and one step later, with a floor of 0.1: LinearLR(1,
    /// 0.1, 10), CosineAnnealingLR(10, 0.1), CosineAnnealingWarmRestarts(10, 1, 0.1), StepLR(3, 0.5),
    /// ExponentialLR(0.9), OneCycleLR(1, 10).
    #[test]
    fn every_decay_ends_where_pytorchs_does() {
        let [a, b] = [8.0, 9.0].map(|t: f64| 0.1 + 0.45 * (1.0 + (t * PI / 10.0).cos()));
        let (restarts, every) = (Decay::CosineRestarts { period: Span::Fraction(1.0), factor: 1.0 }, Span::Steps(1));
        // Its phases end at steps 2 and 9.
        let fall = |t: f64| 0.04e-4 + (1.0 - 0.04e-4) * 0.5 * (1.0 + (PI * (t - 2.0) / 7.0).cos());
        for (decay, expected) in [
            (Decay::Linear, [1.0, 0.28, 0.19, 0.1]),
            (Decay::Cosine, [1.0, a, b, 0.1]),
            (restarts, [1.0, a, b, 1.0]),
            (Decay::Step { every: Span::Steps(3), gamma: 0.5 }, [1.0, 0.25, 0.125, 0.125]),
            (Decay::Exponential { every, gamma: 0.9 }, [0, 8, 9, 10].map(|t| 0.9_f64.powi(t))),
            (Decay::OneCycle { rise: 0.3, div: 25.0, final_div: 1e4 }, [0.04, fall(8.0), 0.04e-4, 0.04e-4]),
        ] {
            close(&rates(&Schedule { floor: 0.1, ..Schedule::new(1.0, decay) }, 10, &[0, 8, 9, 10]), &expected);
        }
        // Behind a warm-up, over the steps that are left.
        let schedule = Schedule { floor: 0.1, ..Schedule::new(1.0, Decay::Linear).with_warmup(4) };
        close(&rates(&schedule, 10, &[3, 4, 9, 10]), &[1.0, 1.0, 0.25, 0.1]);
    }

    #[test]
    fn settings_are_checked() {
        let invalid = |decay| Schedule::new(1.0, decay).validate().unwrap_err().to_string();
        assert!(Schedule::constant(0.0).validate().is_err());
        assert!(Schedule::constant(f64::NAN).validate().is_err());
        assert!(Schedule { floor: 2.0, ..Schedule::cosine(1.0) }.validate().is_err());
        assert!(Schedule { warmup: Span::Fraction(1.5), ..Schedule::cosine(1.0) }.validate().is_err());
        let (every, gamma) = (Span::Steps(1), 0.5);
        for (decay, name) in [
            (Decay::Step { every: Span::Steps(0), gamma }, "every"),
            (Decay::Exponential { every, gamma: 1.5 }, "gamma"),
            (Decay::CosineRestarts { period: every, factor: 0.5 }, "factor"),
            (Decay::CosineRestarts { period: Span::Epochs(f64::NAN), factor: 1.0 }, "period"),
            (Decay::OneCycle { rise: 1.0, div: 25.0, final_div: 1e4 }, "rise"),
            (Decay::OneCycle { rise: 0.3, div: 0.0, final_div: 1e4 }, "div"),
            (Decay::Plateau { factor: 1.0, patience: 0, threshold: 0.0 }, "factor"),
            (Decay::Plateau { factor: 0.1, patience: 0, threshold: 1.0 }, "threshold"),
        ] {
            let message = invalid(decay);
            assert!(message.starts_with(&format!("schedule.{name}: expected")), "{message}");
        }
    }
}
