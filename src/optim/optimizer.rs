//! The optimizers: their settings, moments and kernels. [`super::reference`] has each in f64.

use super::groups::Treatment;
use super::lamb::WORKGROUP;
use super::update::Update;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::kernel::shader::shader;

/// An update rule with its settings. The learning rate comes from the [`Schedule`](super::Schedule). Where PyTorch has
/// the optimizer, it is PyTorch's form of it. λ is the weight decay; but for AdamW, Lion and LAMB it is an L2 penalty,
/// added to the gradient: g + λw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum (Sutskever et al., 2013: v ← μv + g, w ← w − lr·v); 0 for none.
        momentum: f32,
        /// Nesterov's momentum: w ← w − lr·(g + μv).
        nesterov: bool,
        /// L2 penalty.
        weight_decay: f32,
    },
    /// Adam (Kingma and Ba, 2015).
    Adam {
        /// Decay of the first moment.
        beta1: f32,
        /// Decay of the second moment.
        beta2: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// L2 penalty.
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
    /// RMSprop (Tieleman and Hinton, lecture 6.5, 2012): w ← w − lr·g/(√s + ε), s the decaying mean of g².
    RmsProp {
        /// Decay of the means.
        alpha: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// Momentum of the normalised gradient; 0 for none.
        momentum: f32,
        /// Normalises by the variance (Graves, 2013): s less the square of g's decaying mean.
        centered: bool,
        /// L2 penalty.
        weight_decay: f32,
    },
    /// Adagrad (Duchi, Hazan and Singer, 2011): w ← w − lr·g/(√Σg² + ε).
    Adagrad {
        /// The t-th update has the learning rate lr/(1 + (t − 1)·`lr_decay`).
        lr_decay: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// Where each Σg² starts. The moment `sum` is kept without it.
        initial_accumulator: f32,
        /// L2 penalty.
        weight_decay: f32,
    },
    /// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023):
    /// w ← w − lr·(sign(β₁m + (1 − β₁)g) + λw), then m ← β₂m + (1 − β₂)g.
    Lion {
        /// Weight of the moment in the update.
        beta1: f32,
        /// Decay of the moment.
        beta2: f32,
        /// Decoupled weight decay.
        weight_decay: f32,
    },
    /// LAMB (You et al., "Large batch optimization for deep learning", 2020): Adam's direction r and the decay, u = r +
    /// λw, then w ← w − lr·φ(‖w‖)/‖u‖·u for each parameter on its own, φ(x) = min(max(x, low), high). The ratio is 1
    /// where a norm is 0.
    Lamb {
        /// Decay of the first moment.
        beta1: f32,
        /// Decay of the second moment.
        beta2: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// Bounds of φ.
        clamp: [f32; 2],
        /// Decoupled weight decay.
        weight_decay: f32,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::adamw()
    }
}

impl Optimizer {
    /// SGD with this momentum and no weight decay.
    pub const fn sgd(momentum: f32) -> Self {
        Self::Sgd { momentum, nesterov: false, weight_decay: 0.0 }
    }

    /// Adam with PyTorch's defaults.
    pub const fn adam() -> Self {
        Self::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }

    /// AdamW with PyTorch's defaults.
    pub const fn adamw() -> Self {
        Self::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }

    /// RMSprop with PyTorch's defaults.
    pub const fn rmsprop() -> Self {
        Self::RmsProp { alpha: 0.99, epsilon: 1e-8, momentum: 0.0, centered: false, weight_decay: 0.0 }
    }

    /// Adagrad with PyTorch's defaults.
    pub const fn adagrad() -> Self {
        Self::Adagrad { lr_decay: 0.0, epsilon: 1e-10, initial_accumulator: 0.0, weight_decay: 0.0 }
    }

    /// Lion with its paper's decays of the moment and no weight decay.
    pub const fn lion() -> Self {
        Self::Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }
    }

    /// LAMB with its paper's settings; φ is the norm, up to 10.
    pub const fn lamb() -> Self {
        Self::Lamb { beta1: 0.9, beta2: 0.999, epsilon: 1e-6, clamp: [0.0, 10.0], weight_decay: 0.01 }
    }

    /// One of each form that its kernels take, with the default settings otherwise.
    pub fn variants() -> Vec<Self> {
        let nesterov = Self::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.0 };
        let rmsprop =
            |momentum, centered| Self::RmsProp { alpha: 0.99, epsilon: 1e-8, momentum, centered, weight_decay: 0.0 };
        let mut all = vec![Self::sgd(0.0), Self::sgd(0.9), nesterov, Self::adam(), Self::adamw()];
        all.extend([(0.0, false), (0.9, false), (0.0, true), (0.9, true)].map(|(m, c)| rmsprop(m, c)));
        all.extend([Self::adagrad(), Self::lion(), Self::lamb()]);
        all
    }

    /// Its name in run files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Adam { .. } => "adam",
            Self::AdamW { .. } => "adamw",
            Self::RmsProp { .. } => "rmsprop",
            Self::Adagrad { .. } => "adagrad",
            Self::Lion { .. } => "lion",
            Self::Lamb { .. } => "lamb",
        }
    }

    /// Names of the moments it keeps for each parameter, as checkpoints name them.
    pub fn moments(&self) -> &'static [&'static str] {
        match self {
            Self::Sgd { momentum, .. } if *momentum == 0.0 => &[],
            Self::Sgd { .. } => &["momentum"],
            Self::Adam { .. } | Self::AdamW { .. } | Self::Lamb { .. } => &["exp_avg", "exp_avg_sq"],
            Self::RmsProp { momentum, centered, .. } => match (*centered, *momentum != 0.0) {
                (false, false) => &["square_avg"],
                (false, true) => &["square_avg", "momentum"],
                (true, false) => &["square_avg", "grad_avg"],
                (true, true) => &["square_avg", "grad_avg", "momentum"],
            },
            Self::Adagrad { .. } => &["sum"],
            Self::Lion { .. } => &["exp_avg"],
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
        let above = |name, v: f32| check(name, v, v.is_finite() && v > 0.0, "a finite number above 0");
        positive("weight_decay", self.weight_decay())?;
        match *self {
            Self::Sgd { momentum, nesterov, .. } => {
                unit("momentum", momentum)?;
                check("momentum", momentum, !nesterov || momentum > 0.0, "a number above 0 with nesterov")
            }
            Self::Adam { beta1, beta2, epsilon, .. } | Self::AdamW { beta1, beta2, epsilon, .. } => {
                unit("betas[1]", beta1)?;
                unit("betas[2]", beta2)?;
                above("epsilon", epsilon)
            }
            Self::RmsProp { alpha, epsilon, momentum, .. } => {
                unit("alpha", alpha)?;
                above("epsilon", epsilon)?;
                unit("momentum", momentum)
            }
            Self::Adagrad { lr_decay, epsilon, initial_accumulator, .. } => {
                positive("lr_decay", lr_decay)?;
                above("epsilon", epsilon)?;
                positive("initial_accumulator", initial_accumulator)
            }
            Self::Lion { beta1, beta2, .. } => {
                unit("betas[1]", beta1)?;
                unit("betas[2]", beta2)
            }
            Self::Lamb { beta1, beta2, epsilon, clamp: [low, high], .. } => {
                unit("betas[1]", beta1)?;
                unit("betas[2]", beta2)?;
                above("epsilon", epsilon)?;
                positive("clamp[1]", low)?;
                check("clamp[2]", high, high.is_finite() && high > low, "a finite number above the lower bound")
            }
        }
    }

    /// Its weight decay.
    pub const fn weight_decay(&self) -> f32 {
        match *self {
            Self::Sgd { weight_decay, .. }
            | Self::Adam { weight_decay, .. }
            | Self::AdamW { weight_decay, .. }
            | Self::RmsProp { weight_decay, .. }
            | Self::Adagrad { weight_decay, .. }
            | Self::Lion { weight_decay, .. }
            | Self::Lamb { weight_decay, .. } => weight_decay,
        }
    }

    /// Whether the size of its steps does not follow the size of the gradient: it is divided by a mean of its own (or,
    /// Lion, only its sign is taken).
    pub(crate) const fn is_adaptive(&self) -> bool {
        !matches!(self, Self::Sgd { .. })
    }

    /// Whether it measures norms of whole parameters, so that each is updated on its own ([`super::lamb`]).
    pub(super) const fn by_parameter(&self) -> bool {
        matches!(self, Self::Lamb { .. })
    }

    /// The kernel that ends the update of parameters that are treated so. It binds parameters, gradients, norm and each
    /// moment; what LAMB's binds, [`super::lamb`] says.
    pub(super) fn kernel(&self, treatment: Treatment) -> Kernel {
        let adam = |shader, beta1: f32, beta2: f32, epsilon: f32| {
            Kernel::linear(shader, 64).constant("BETA1", beta1).constant("BETA2", beta2).constant("EPSILON", epsilon)
        };
        let kernel = match *self {
            Self::Sgd { momentum, nesterov, .. } => Kernel::linear(shader!("sgd"), 64)
                .define_if(momentum != 0.0, "MOMENTUM")
                .define_if(nesterov, "NESTEROV")
                .constant("MU", momentum),
            Self::Adam { beta1, beta2, epsilon, .. } => adam(shader!("adam"), beta1, beta2, epsilon),
            Self::AdamW { beta1, beta2, epsilon, .. } => adam(shader!("adamw"), beta1, beta2, epsilon),
            Self::RmsProp { alpha, epsilon, momentum, centered, .. } => Kernel::linear(shader!("rmsprop"), 64)
                .define_if(centered, "CENTERED")
                .define_if(momentum != 0.0, "MOMENTUM")
                .constant("ALPHA", alpha)
                .constant("EPSILON", epsilon)
                .constant("MU", momentum),
            Self::Adagrad { epsilon, initial_accumulator, .. } => Kernel::linear(shader!("adagrad"), 64)
                .constant("EPSILON", epsilon)
                .constant("INITIAL", initial_accumulator),
            Self::Lion { beta1, beta2, .. } => {
                Kernel::linear(shader!("lion"), 64).constant("BETA1", beta1).constant("BETA2", beta2)
            }
            Self::Lamb { beta1, beta2, epsilon, clamp: [low, high], .. } => Kernel::linear(shader!("lamb"), WORKGROUP)
                .constant("BETA1", beta1)
                .constant("BETA2", beta2)
                .constant("EPSILON", epsilon)
                .constant("LOW", low)
                .constant("HIGH", high),
        };
        kernel.constant("WEIGHT_DECAY", treatment.weight_decay).constant("LR_SCALE", treatment.lr_scale)
    }

    /// The values that change from update to update, for the `applied`-th update (counted from 1).
    pub fn step(&self, learning_rate: f64, weight_sum: f64, applied: u64) -> Update {
        let correction = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(applied as f64))) as f32;
        let (correction_1, correction_2) = match *self {
            Self::Adam { beta1, beta2, .. } | Self::AdamW { beta1, beta2, .. } | Self::Lamb { beta1, beta2, .. } => {
                (correction(beta1), correction(beta2))
            }
            _ => (1.0, 1.0),
        };
        let learning_rate = match *self {
            Self::Adagrad { lr_decay, .. } => learning_rate / (1.0 + (applied - 1) as f64 * f64::from(lr_decay)),
            _ => learning_rate,
        };
        let inverse_weight = (1.0 / weight_sum) as f32;
        Update { learning_rate: learning_rate as f32, inverse_weight, correction_1, correction_2 }
    }
}
