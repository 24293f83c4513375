//! Tensors of the f64 references that kernels are tested against, and how far kernels may be off. Class indices are
//! held as floats too: they are exact.

use crate::tensor::{DType, Elements, HostTensor, Shape};

/// Allowed difference from an f64 reference: |x − ref| ≤ absolute + relative·|ref|. [`Tolerance::of`] is the one table
/// that tests and self-test share; an exception stands where it is used, with its reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Difference that is allowed near zero.
    pub absolute: f64,
    /// Difference that is allowed for each unit of the reference.
    pub relative: f64,
}

impl Tolerance {
    /// What a kernel's results of this type may be off by.
    pub const fn of(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self { absolute: 2e-5, relative: 2e-5 },
            DType::U32 => Self { absolute: 0.0, relative: 0.0 },
        }
    }

    /// This many times the difference.
    pub const fn times(self, factor: f64) -> Self {
        Self { absolute: self.absolute * factor, relative: self.relative * factor }
    }

    /// The difference of `x` from `reference` in units of what is allowed: at most 1 passes. Infinite where either is
    /// not a number, or only one is infinite.
    pub fn error(self, x: f64, reference: f64) -> f64 {
        if x == reference {
            return 0.0;
        }
        let error = (x - reference).abs() / (self.absolute + self.relative * reference.abs());
        if error.is_nan() { f64::INFINITY } else { error }
    }

    /// The largest [`Tolerance::error`] of all elements.
    ///
    /// # Panics
    /// When the lengths differ: a caller's bug.
    pub fn worst(self, got: &[f32], reference: &[f64]) -> f64 {
        assert_eq!(got.len(), reference.len(), "lengths differ");
        got.iter().zip(reference).map(|(&x, &r)| self.error(f64::from(x), r)).fold(0.0, f64::max)
    }
}

/// A dense row-major f64 tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Dimensions.
    pub shape: Shape,
    /// Elements.
    pub data: Vec<f64>,
}

impl Reference {
    /// A tensor of zeros.
    pub fn zeros(shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        let data = vec![0.0; shape.elements()];
        Self { shape, data }
    }

    /// A tensor whose element at each row-major position is `value(position)`.
    pub fn from_fn(shape: impl Into<Shape>, value: impl FnMut(usize) -> f64) -> Self {
        let shape = shape.into();
        let data = (0..shape.elements()).map(value).collect();
        Self { shape, data }
    }

    /// `f` of every element.
    pub fn map(&self, mut f: impl FnMut(f64) -> f64) -> Self {
        Self::from_fn(self.shape.clone(), |i| f(self.data[i]))
    }

    /// `f` of every pair of elements; both shapes are equal.
    pub fn zip(&self, other: &Self, mut f: impl FnMut(f64, f64) -> f64) -> Self {
        assert_eq!(self.shape, other.shape, "zip needs equal shapes");
        Self::from_fn(self.shape.clone(), |i| f(self.data[i], other.data[i]))
    }

    /// The same elements under another shape.
    pub fn reshaped(&self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.elements(), self.data.len(), "reshape keeps the number of elements");
        Self { shape, data: self.data.clone() }
    }
}

impl From<&HostTensor> for Reference {
    fn from(tensor: &HostTensor) -> Self {
        let data = match tensor.elements() {
            Elements::F32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            Elements::U32(v) => v.iter().map(|&x| f64::from(x)).collect(),
        };
        Self { shape: tensor.shape().clone(), data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_can_fail() {
        let worst = |got: &[f32], reference: &[f64]| Tolerance::of(DType::F32).worst(got, reference);
        assert!(worst(&[1.0], &[1.0]) <= 1.0);
        assert!(worst(&[1.0, 1.001], &[1.0, 1.0]) > 1.0);
        assert!(worst(&[f32::NAN], &[1.0]) > 1.0);
        assert!(worst(&[f32::NAN], &[f64::NAN]) > 1.0);
        assert!(worst(&[f32::INFINITY], &[1.0]) > 1.0);
        assert!(worst(&[1.0], &[f64::INFINITY]) > 1.0);
        assert!(Tolerance::of(DType::U32).error(1.0, 2.0) > 1.0);
    }
}
