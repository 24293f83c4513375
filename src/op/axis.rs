//! A tensor seen around one of its axes.

use super::prelude::*;

/// A tensor as (outer, extent, inner): an axis, and what is outside and inside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Product of the dimensions in front.
    pub outer: usize,
    /// The axis.
    pub extent: usize,
    /// Product of the dimensions behind: the distance between neighbours along the axis.
    pub inner: usize,
}

impl Axis {
    /// Axis `axis` of `shape`.
    ///
    /// # Errors
    /// When there is no such axis.
    pub fn of(op: &str, shape: &Shape, axis: usize) -> Result<Self> {
        let dims = shape.dims();
        if axis >= dims.len() {
            return Err(Error::shape(op, format!("expected an axis below {} for {shape}, got {axis}", dims.len())));
        }
        let (outer, inner) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
        Ok(Self { outer, extent: dims[axis], inner })
    }

    /// Adds `EXTENT` and `INNER`.
    pub fn constants(&self, kernel: Kernel) -> Kernel {
        kernel.constant("EXTENT", self.extent).constant("INNER", self.inner)
    }

    /// Position of the first element along the axis of line `line` of `outer · inner`.
    pub fn start(&self, line: usize) -> usize {
        line / self.inner * (self.extent * self.inner) + line % self.inner
    }
}

/// `shape` with `extent` as its dimension `axis`.
pub fn resized(shape: &Shape, axis: usize, extent: usize) -> Shape {
    let mut dims = shape.dims().to_vec();
    dims[axis] = extent;
    dims.into()
}
