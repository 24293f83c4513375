//! Tensors of the f64 references that kernels are tested against. Class indices are held as floats too: they are exact.

use crate::tensor::{Elements, HostTensor, Shape};

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
