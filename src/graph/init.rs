//! How parameters start: what is drawn for one, and what a user asks for a layer's weights.

use crate::tensor::Shape;

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// All this.
    Constant {
        /// The value.
        value: f32,
    },
    /// Normal with this standard deviation.
    Normal {
        /// The deviation.
        deviation: f32,
    },
    /// Normal with this standard deviation, of which what is further than two deviations from 0 is drawn again. (The
    /// result has 0.88 of the deviation.)
    TruncatedNormal {
        /// The deviation before the cut.
        deviation: f32,
    },
    /// Uniform in ±bound.
    Uniform {
        /// The largest value.
        bound: f32,
    },
    /// Normal with variance 2/fan_in (He et al., "Delving deep into rectifiers", 2015).
    KaimingNormal {
        /// Inputs that one output sums over.
        fan_in: usize,
    },
    /// Uniform in ±√(6/fan_in): the variance of [`Init::KaimingNormal`].
    KaimingUniform {
        /// Inputs that one output sums over.
        fan_in: usize,
    },
    /// Normal with variance 2/(fan_in + fan_out) (Glorot and Bengio, "Understanding the difficulty of training deep
    /// feedforward neural networks", 2010).
    XavierNormal {
        /// Inputs that one output sums over.
        fan_in: usize,
        /// Outputs that one input feeds.
        fan_out: usize,
    },
    /// Uniform in ±√(6/(fan_in + fan_out)): the variance of [`Init::XavierNormal`].
    XavierUniform {
        /// Inputs that one output sums over.
        fan_in: usize,
        /// Outputs that one input feeds.
        fan_out: usize,
    },
    /// As a matrix of (first dimension, all others): `gain` times a random matrix with orthonormal rows, or columns
    /// where those are fewer, uniform over all such (Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear
    /// dynamics of learning in deep linear neural networks", 2014).
    Orthogonal {
        /// The length of a row or column.
        gain: f32,
    },
}

/// How a layer's weights start: an [`Init`] whose fans follow from a weight's shape (out, in, ..window) as in PyTorch:
/// fan_in is in times the window, fan_out is out times the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initializer {
    /// [`Init::Constant`].
    Constant {
        /// The value.
        value: f32,
    },
    /// [`Init::Normal`].
    Normal {
        /// The deviation.
        deviation: f32,
    },
    /// [`Init::TruncatedNormal`].
    TruncatedNormal {
        /// The deviation before the cut.
        deviation: f32,
    },
    /// [`Init::KaimingNormal`].
    KaimingNormal,
    /// [`Init::KaimingUniform`].
    KaimingUniform,
    /// [`Init::XavierNormal`].
    XavierNormal,
    /// [`Init::XavierUniform`].
    XavierUniform,
    /// [`Init::Orthogonal`].
    Orthogonal {
        /// The length of a row or column.
        gain: f32,
    },
}

impl Initializer {
    /// What this gives a weight of two dimensions or more, or what is wrong with its setting.
    pub(super) fn init(self, shape: &Shape) -> Result<Init, String> {
        let window: usize = shape.dims()[2..].iter().product();
        let (fan_in, fan_out) = (shape[1] * window, shape[0] * window);
        let finite = |name: &str, number: f32, least: f32| match number.is_finite() && number >= least {
            true => Ok(number),
            false if least == 0.0 => Err(format!("expected a finite {name} of at least 0, got {number}")),
            false => Err(format!("expected a finite {name}, got {number}")),
        };
        Ok(match self {
            Self::Constant { value } => Init::Constant { value: finite("value", value, f32::MIN)? },
            Self::Normal { deviation } => Init::Normal { deviation: finite("deviation", deviation, 0.0)? },
            Self::TruncatedNormal { deviation } => {
                Init::TruncatedNormal { deviation: finite("deviation", deviation, 0.0)? }
            }
            Self::KaimingNormal => Init::KaimingNormal { fan_in },
            Self::KaimingUniform => Init::KaimingUniform { fan_in },
            Self::XavierNormal => Init::XavierNormal { fan_in, fan_out },
            Self::XavierUniform => Init::XavierUniform { fan_in, fan_out },
            Self::Orthogonal { gain } => Init::Orthogonal { gain: finite("gain", gain, 0.0)? },
        })
    }
}
