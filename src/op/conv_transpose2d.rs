//! Transposed two-dimensional convolution. It has no kernel of its own: it is what a convolution's gradient computes.

use super::prelude::*;
use super::window::planes;
use super::{Add, Conv2d, Conv2dGradInput, Reshape};

/// (x, weight\[, bias\]) → y; x (N, I, H, W), weight (I, O/groups, KH, KW), bias (O), y (N, O, OH, OW) with
/// OH = (H − 1) stride − padding + dilation (KH − 1) + output_padding + 1. Layouts and formulas are PyTorch's. Pairs
/// are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvTranspose2d {
    /// How far a pixel of x moves the window in y.
    pub stride: [usize; 2],
    /// Rows and columns of y that are cut off: top, bottom, left, right.
    pub padding: [usize; 4],
    /// Rows and columns that y is longer by at the bottom and right; less than the stride.
    pub output_padding: [usize; 2],
    /// Distance between two taps of a window.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
}

impl Default for ConvTranspose2d {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0; 4], output_padding: [0; 2], dilation: [1, 1], groups: 1 }
    }
}

const NAME: &str = "conv_transpose2d";
/// Most of a stride, a padding, a dilation or a kernel's extent: beyond any use, and sizes in pixels stay far from
/// overflow.
pub const LARGEST: usize = 65_535;

impl ConvTranspose2d {
    /// The shape of y.
    ///
    /// # Errors
    /// When x and weight do not fit each other or the attributes.
    pub fn output(&self, x: &Shape, weight: &Shape) -> Result<Shape> {
        let [n, i, h, w] = planes(NAME, "input", x)?;
        let [rows, o, kh, kw] = planes(NAME, "weight", weight)?;
        if rows != i || self.groups == 0 || i % self.groups != 0 {
            let message =
                format!("input {x} in {} groups: expected weight [{i}, _, {kh}, {kw}], got {weight}", self.groups);
            return Err(Error::shape(NAME, message));
        }
        let attributes = [&self.stride[..], &self.padding, &self.output_padding, &self.dilation].concat();
        if attributes.iter().any(|&value| value > LARGEST) {
            let message = format!("expected strides, paddings and dilations of at most {LARGEST}, got {self:?}");
            return Err(Error::shape(NAME, message));
        }
        let mut extents = [h, w];
        for axis in 0..2 {
            let (stride, extra) = (self.stride[axis], self.output_padding[axis]);
            if extra >= stride {
                let message = format!("expected output_padding below the stride {stride}, got {extra}");
                return Err(Error::shape(NAME, message));
            }
            let span = self.dilation[axis] * ([kh, kw][axis] - 1) + 1;
            let full = (extents[axis] - 1) * stride + span + extra;
            let cut = self.padding[2 * axis] + self.padding[2 * axis + 1];
            if cut >= full {
                let message = format!("expected padding of less than {full} pixels in all, got {cut}");
                return Err(Error::shape(NAME, message));
            }
            extents[axis] = full - cut;
        }
        Ok([n, o * self.groups, extents[0], extents[1]].into())
    }

    /// Emits the ops; `bias` (O) is added where there is one.
    ///
    /// # Errors
    /// As [`ConvTranspose2d::output`], and for a bias of another shape.
    pub fn emit(&self, emit: &mut dyn Emit, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Result<ValueId> {
        let input = self.output(&emit.shape_of(x), &emit.shape_of(weight))?;
        let &Self { stride, padding, dilation, groups, .. } = self;
        let conv = Conv2d { stride, padding, dilation, groups, activation: None };
        let channels = input[1];
        let y = emit.emit(Conv2dGradInput { conv, input }, &[weight, x])?;
        let Some(bias) = bias else { return Ok(y) };
        let bias = emit.emit(Reshape([channels, 1, 1].into()), &[bias])?;
        emit.emit(Add, &[y, bias])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, interpret};

    #[test]
    fn a_case_done_by_hand() {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32([1, 1, 1, 2]));
        let weight = graph.input("weight", TensorType::f32([1, 2, 1, 3]));
        let bias = graph.input("bias", TensorType::f32([2]));
        let op =
            ConvTranspose2d { stride: [1, 2], padding: [0, 0, 1, 0], output_padding: [0, 1], ..Default::default() };
        let y = op.emit(&mut graph, x, weight, Some(bias)).unwrap();
        let inputs = [
            Reference::from_fn([1, 1, 1, 2], |i| [1.0, 10.0][i]),
            Reference::from_fn([1, 2, 1, 3], |i| i as f64),
            Reference::from_fn([2], |i| i as f64 / 2.0),
        ];
        let y = interpret(&graph, &inputs, &[], &Step::default(), &[y]).unwrap().remove(0);
        // Windows at 0 and 2: 0 1 2+0 10 20 0, the first column cut off; then 3 4 5+30 40 50 0.5 with the bias.
        assert_eq!(y.shape, [1, 2, 1, 5].into());
        assert_eq!(y.data, [1.0, 2.0, 10.0, 20.0, 0.0, 4.5, 35.5, 40.5, 50.5, 0.5]);
    }

    #[test]
    fn attributes_that_cannot_work_are_named() {
        let error = |op: ConvTranspose2d, x: [usize; 4], weight: [usize; 4]| {
            op.output(&x.into(), &weight.into()).unwrap_err().to_string()
        };
        let plain = ConvTranspose2d::default();
        assert_eq!(
            error(plain, [1, 3, 2, 2], [2, 3, 2, 2]),
            "conv_transpose2d: input [1, 3, 2, 2] in 1 groups: expected weight [3, _, 2, 2], got [2, 3, 2, 2]"
        );
        let padded = ConvTranspose2d { output_padding: [1, 0], ..plain };
        assert_eq!(
            error(padded, [1, 1, 2, 2], [1, 1, 2, 2]),
            "conv_transpose2d: expected output_padding below the stride 1, got 1"
        );
        let cut = ConvTranspose2d { padding: [2, 1, 0, 0], ..plain };
        assert_eq!(
            error(cut, [1, 1, 2, 2], [1, 1, 2, 2]),
            "conv_transpose2d: expected padding of less than 3 pixels in all, got 3"
        );
    }
}
