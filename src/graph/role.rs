//! What changes a parameter: the optimizer, or what a step has seen.

use super::ParameterId;

/// What changes a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// The optimizer, by its gradient.
    Trained,
    /// Every step that is applied, by what the step's samples were. It is no part of the gradient's norm.
    Running(Running),
}

impl Role {
    /// Whether it is the optimizer's.
    pub fn is_trained(self) -> bool {
        self == Self::Trained
    }
}

/// Statistics of values x over a step's samples, merged into running ones. A training graph accumulates sums over the
/// values of a micro-batch; so the step's statistics are those of all its values together, however the batch was
/// divided.
///
/// Sums are taken of x − r, r the running mean before the step, which is the same on all devices. Squares are summed of
/// deviations from the mean of what has been summed, and merged by counts and means (Chan, Golub and LeVeque, 1983):
/// far from zero or r, the difference between Σx²/n and (Σx/n)² would be lost in rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Running {
    /// The number of steps, \[1\], exact up to 2²⁴. Accumulates n, the number of values.
    Steps,
    /// r ← (1 − m)·r + m·Σx/n. Accumulates Σ(x − r).
    Mean {
        /// m.
        momentum: f32,
        /// Where n is.
        steps: ParameterId,
    },
    /// v ← (1 − m)·v + m·Σ(x − x̄)²/n, x̄ the mean of the n values. Accumulates Σ(x − x̄)², of an op that gives n and
    /// Σ(x − r), too.
    Variance {
        /// m.
        momentum: f32,
        /// Where n is.
        steps: ParameterId,
        /// The mean of the same values.
        mean: ParameterId,
    },
}
