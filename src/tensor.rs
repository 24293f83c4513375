//! Shapes, element types and tensors in host memory. Knows nothing of devices, ops or files.

mod named;

use std::fmt;

pub use named::Named;

use crate::error::{Error, Result};

/// Element type of a tensor. Both are 4 bytes, the only widths that every WebGPU adapter stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// Unsigned 32-bit integer: class indices.
    U32,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        4
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::U32 => "u32",
        })
    }
}

/// Dimensions of a dense row-major tensor, outermost first. An empty list is a scalar.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements (1 for a scalar); the largest `usize` when it is beyond that.
    pub fn elements(&self) -> usize {
        if self.0.contains(&0) {
            return 0;
        }
        self.0.iter().fold(1_usize, |product, &dim| product.saturating_mul(dim))
    }

    /// Elements between two neighbours along each dimension, in row-major order.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for d in (1..self.rank()).rev() {
            strides[d - 1] = self.0[d].saturating_mul(strides[d]);
        }
        strides
    }

    /// This shape with `batch` in front.
    pub fn batched(&self, batch: usize) -> Shape {
        let mut dims = Vec::with_capacity(self.rank() + 1);
        dims.push(batch);
        dims.extend_from_slice(&self.0);
        Shape(dims)
    }
}

impl<T: Into<Vec<usize>>> From<T> for Shape {
    fn from(dims: T) -> Self {
        Self(dims.into())
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = usize;
    fn index(&self, axis: usize) -> &usize {
        &self.0[axis]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shape and element type together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Dimensions.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl TensorType {
    /// An f32 tensor of this shape.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::F32 }
    }

    /// A u32 tensor of this shape.
    pub fn u32(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), dtype: DType::U32 }
    }

    /// Bytes of the dense tensor.
    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.size()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// The elements of a [`HostTensor`].
#[derive(Debug, Clone, PartialEq)]
pub enum Elements {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
}

/// A dense row-major tensor in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    shape: Shape,
    elements: Elements,
}

impl HostTensor {
    /// A tensor of `shape` over `elements`.
    ///
    /// # Errors
    /// When the number of elements is not the shape's.
    pub fn new(shape: impl Into<Shape>, elements: Elements) -> Result<Self> {
        let shape = shape.into();
        let given = match &elements {
            Elements::F32(v) => v.len(),
            Elements::U32(v) => v.len(),
        };
        if given != shape.elements() {
            return Err(Error::shape(
                format!("tensor {shape}"),
                format!("expected {} elements, got {given}", shape.elements()),
            ));
        }
        Ok(Self { shape, elements })
    }

    /// An f32 tensor. See [`HostTensor::new`].
    pub fn f32(shape: impl Into<Shape>, values: Vec<f32>) -> Result<Self> {
        Self::new(shape, Elements::F32(values))
    }

    /// A u32 tensor. See [`HostTensor::new`].
    pub fn u32(shape: impl Into<Shape>, values: Vec<u32>) -> Result<Self> {
        Self::new(shape, Elements::U32(values))
    }

    /// Dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match self.elements {
            Elements::F32(_) => DType::F32,
            Elements::U32(_) => DType::U32,
        }
    }

    /// The elements.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// The shape and the elements, given up without a copy.
    pub fn into_parts(self) -> (Shape, Elements) {
        (self.shape, self.elements)
    }

    /// The elements as floats; `None` when they are integers.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.elements {
            Elements::F32(v) => Some(v),
            Elements::U32(_) => None,
        }
    }

    /// The elements as integers; `None` when they are floats.
    pub fn as_u32(&self) -> Option<&[u32]> {
        match &self.elements {
            Elements::U32(v) => Some(v),
            Elements::F32(_) => None,
        }
    }

    /// The elements' bytes in native order, as buffers take them.
    pub fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::F32(v) => bytemuck::cast_slice(v),
            Elements::U32(v) => bytemuck::cast_slice(v),
        }
    }

    /// The bytes of rows `rows` along the first dimension.
    ///
    /// # Panics
    /// When the range is out of bounds or the tensor is a scalar: a caller's bug.
    pub fn row_bytes(&self, rows: std::ops::Range<usize>) -> &[u8] {
        let row = self.shape.dims()[1..].iter().product::<usize>() * self.dtype().size();
        &self.bytes()[rows.start * row..rows.end * row]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_know_their_elements_and_strides() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!((shape.elements(), shape.strides()), (24, vec![12, 4, 1]));
        assert_eq!(Shape::from([]).elements(), 1);
        assert_eq!(shape.batched(5).to_string(), "[5, 2, 3, 4]");
    }

    #[test]
    fn a_tensor_needs_as_many_elements_as_its_shape() {
        let error = HostTensor::f32([2, 2], vec![0.0; 3]).unwrap_err();
        assert_eq!(error.to_string(), "tensor [2, 2]: expected 4 elements, got 3");
    }

    #[test]
    fn row_bytes_are_whole_rows() {
        let tensor = HostTensor::u32([3, 2], (0..6).collect()).unwrap();
        assert_eq!(tensor.row_bytes(1..3), bytemuck::cast_slice::<u32, u8>(&[2, 3, 4, 5]));
    }
}
