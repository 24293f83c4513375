//! Optimizers as kernels over flat buckets. Knows buckets and their parameters' names, not layers.
//!
//! One update is: the global norm of the averaged gradient, then per run of parameters the optimizer's kernel. Gradients
//! arrive as sums over the whole step; the kernels multiply by 1/W, once, and by the clipping factor. When any gradient is
//! not finite, no weight and no moment changes. Running statistics, which no gradient changes, are merged beside.

mod running;
mod schedule;
mod update;

pub use schedule::{Decay, Schedule};
pub use update::{NORM_BYTES, NormOutcome, Update, UpdatePlan};

use crate::error::{Error, Result};
use crate::op::Kernel;
use crate::op::shader::shader;
use crate::plan::Placed;

/// An update rule with its settings. The learning rate comes from the [`Schedule`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum (Sutskever et al., 2013, in PyTorch's form: v ← μv + g, w ← w − lr·v); 0 for none.
        momentum: f32,
        /// L2 penalty added to the gradient: g + λw.
        weight_decay: f32,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).
    AdamW {
        /// Decay of the first moment.
        beta1: f32,
        /// Decay of the second moment.
        beta2: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// Decoupled weight decay: w ← w − lr·λ·w.
        weight_decay: f32,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::adamw()
    }
}

impl Optimizer {
    /// AdamW with PyTorch's defaults.
    pub const fn adamw() -> Self {
        Self::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }

    /// SGD with this momentum and no weight decay.
    pub const fn sgd(momentum: f32) -> Self {
        Self::Sgd { momentum, weight_decay: 0.0 }
    }

    /// Names of the moments it keeps for each parameter, as checkpoints name them.
    pub fn moments(&self) -> &'static [&'static str] {
        match self {
            Self::Sgd { momentum, .. } if *momentum == 0.0 => &[],
            Self::Sgd { .. } => &["momentum"],
            Self::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        let check = |name: &str, value: f32, ok: bool, expected: &str| {
            if ok {
                Ok(())
            } else {
                Err(Error::invalid(format!("optimizer.{name}"), format!("expected {expected}, got {value}")))
            }
        };
        let unit = |name, v: f32| check(name, v, (0.0..1.0).contains(&v), "a number in [0, 1)");
        let positive = |name, v: f32| check(name, v, v.is_finite() && v >= 0.0, "a finite number, 0 or more");
        match *self {
            Self::Sgd { momentum, weight_decay } => {
                unit("momentum", momentum)?;
                positive("weight_decay", weight_decay)
            }
            Self::AdamW { beta1, beta2, epsilon, weight_decay } => {
                unit("beta1", beta1)?;
                unit("beta2", beta2)?;
                check("epsilon", epsilon, epsilon.is_finite() && epsilon > 0.0, "a finite number above 0")?;
                positive("weight_decay", weight_decay)
            }
        }
    }

    /// Whether a parameter's weights decay: matrices and kernels do, biases and normalisation scales (rank 1) do not.
    pub fn decays(placed: &Placed) -> bool {
        placed.shape.rank() > 1
    }

    /// The update kernel for parameters that decay or do not. It binds parameters, gradients, norm and each moment.
    pub(crate) fn kernel(&self, decay: bool) -> Kernel {
        let decayed = |weight_decay: f32| if decay { weight_decay } else { 0.0 };
        match *self {
            Self::Sgd { momentum, weight_decay } => Kernel::linear(shader!("sgd"), 64)
                .define_if(momentum != 0.0, "MOMENTUM")
                .constant("MU", momentum)
                .constant("WEIGHT_DECAY", decayed(weight_decay)),
            Self::AdamW { beta1, beta2, epsilon, weight_decay } => Kernel::linear(shader!("adamw"), 64)
                .constant("BETA1", beta1)
                .constant("BETA2", beta2)
                .constant("EPSILON", epsilon)
                .constant("WEIGHT_DECAY", decayed(weight_decay)),
        }
    }

    /// The values that change from update to update, for the `applied`-th update (counted from 1).
    pub fn step(&self, learning_rate: f64, weight_sum: f64, applied: u64) -> Update {
        let correction = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(applied as f64))) as f32;
        let (correction_1, correction_2) = match *self {
            Self::Sgd { .. } => (1.0, 1.0),
            Self::AdamW { beta1, beta2, .. } => (correction(beta1), correction(beta2)),
        };
        let inverse_weight = (1.0 / weight_sum) as f32;
        Update { learning_rate: learning_rate as f32, inverse_weight, correction_1, correction_2 }
    }
}
