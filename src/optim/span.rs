//! Lengths of training, and where in a run a step is.

/// A length of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    /// Optimizer steps.
    Steps(u64),
    /// Passes over the training data, also parts of one.
    Epochs(f64),
    /// A part of the whole run.
    Fraction(f64),
}

impl Span {
    /// Its whole steps in the run of `at`.
    pub fn steps(self, at: &At) -> u64 {
        match self {
            Self::Steps(steps) => steps,
            Self::Epochs(epochs) => (epochs * at.steps_per_epoch as f64).round() as u64,
            Self::Fraction(fraction) => (fraction * at.total as f64).round() as u64,
        }
    }

    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Steps(_) => true,
            Self::Epochs(epochs) => epochs.is_finite() && epochs >= 0.0,
            Self::Fraction(fraction) => (0.0..=1.0).contains(&fraction),
        }
    }

    pub(super) fn is_zero(self) -> bool {
        matches!(self, Self::Steps(0) | Self::Epochs(0.0) | Self::Fraction(0.0))
    }
}

/// The step whose learning rate is asked for, and the run it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct At {
    /// Steps before this one, over the whole run.
    pub step: u64,
    /// Steps of the run.
    pub total: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// How often [`Plateau`](super::Plateau) has reduced the rate.
    pub reductions: u32,
}
