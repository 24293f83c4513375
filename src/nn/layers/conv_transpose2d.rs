//! Transposed two-dimensional convolution.

use super::Layer;
use super::window::{image, pair_text};
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::conv_transpose2d::LARGEST;
use crate::op::{self, ValueId};

/// x (N, C, H, W) → (N, out, OH, OW) with OH = (H − 1) stride − padding + dilation (kernel − 1) + output_padding + 1.
/// Parameters as in PyTorch: `weight` (C, out/groups, KH, KW), He normal for the inputs that an output sums over, and
/// `bias` (out), zero. Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvTranspose2d {
    /// Number of output channels.
    pub out: usize,
    /// Extents of a window.
    pub kernel: [usize; 2],
    /// How far a pixel moves the window.
    pub stride: [usize; 2],
    /// Rows and columns of the result that are cut off: top, bottom, left, right.
    pub padding: [usize; 4],
    /// Rows and columns that the result is longer by at the bottom and right; less than the stride.
    pub output_padding: [usize; 2],
    /// Distance between two taps of a window.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

impl ConvTranspose2d {
    /// `out` channels through a square kernel: stride 1, nothing cut off, with a bias.
    pub fn new(out: usize, kernel: usize) -> Self {
        Self {
            out,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: [0; 4],
            output_padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
            bias: true,
        }
    }
}

impl Layer for ConvTranspose2d {
    fn kind(&self) -> &'static str {
        "conv_transpose2d"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let [channels, ..] = image(self.kind(), graph, x)?;
        let &Self { out, stride, padding, output_padding, dilation, groups, .. } = self;
        let [kernel_height, kernel_width] = self.kernel;
        for (name, pair) in [("kernel", self.kernel), ("stride", stride), ("dilation", dilation)] {
            if pair.contains(&0) {
                return Err(Error::shape(
                    self.kind(),
                    format!("expected {name} of at least 1, got {}", pair_text(pair)),
                ));
            }
            if pair.iter().any(|&extent| extent > LARGEST) {
                let message = format!("expected {name} of at most {LARGEST}, got {}", pair_text(pair));
                return Err(Error::shape(self.kind(), message));
            }
        }
        if groups == 0 || out == 0 || channels % groups != 0 || out % groups != 0 {
            let message = format!("{channels} input and {out} output channels do not divide into {groups} groups");
            return Err(Error::shape(self.kind(), message));
        }
        let taps = kernel_height.saturating_mul(kernel_width);
        let fan_in = ((channels / groups).saturating_mul(taps) / stride[0].saturating_mul(stride[1])).max(1);
        let shape = [channels, out / groups, kernel_height, kernel_width];
        let weight = graph.parameter("weight", shape, Init::KaimingNormal { fan_in })?;
        let bias = if self.bias { Some(graph.parameter("bias", [out], Init::Zeros)?) } else { None };
        op::ConvTranspose2d { stride, padding, output_padding, dilation, groups }.emit(graph, x, weight, bias)
    }
}
