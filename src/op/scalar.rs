//! Real attributes of ops.

use std::fmt;

use crate::error::{Error, Result};
use crate::kernel::Constant;

/// An op's real attribute. Compared and hashed by its bits, so that ops with one stay `Eq` and `Hash`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar(u32);

impl Scalar {
    /// `value`, which ops accept only when it is finite.
    pub const fn new(value: f32) -> Self {
        Self(value.to_bits())
    }

    /// The value.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }

    /// The value, exactly.
    pub fn f64(self) -> f64 {
        f64::from(self.get())
    }

    /// Checks that it is finite: shaders have no constants that are not.
    pub(super) fn check(self, op: &str, name: &str) -> Result<()> {
        if self.get().is_finite() {
            return Ok(());
        }
        Err(Error::shape(op, format!("expected a finite {name}, got {self:?}")))
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Self {
        Self::new(value)
    }
}

impl From<Scalar> for Constant {
    fn from(value: Scalar) -> Self {
        Self::F32(value.get())
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}
