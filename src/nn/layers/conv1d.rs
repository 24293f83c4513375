//! One-dimensional convolution: a two-dimensional one over images of height 1.

use std::sync::Arc;

use super::{Activation, Conv2d, Layer, Padding};
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::{self, ValueId};
use crate::tensor::Shape;

/// x (N, C, T) → f(x ∗ weight + bias) (N, out, OT). Parameters as in PyTorch: `weight` (out, C/groups, K), He normal,
/// and `bias` (out), zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv1d {
    /// Number of output channels.
    pub out: usize,
    /// Extent of a window.
    pub kernel: usize,
    /// Distance between two windows.
    pub stride: usize,
    /// Zeros in front and behind; `None`: as many as make the output ⌈T / stride⌉, an odd one behind.
    pub padding: Option<[usize; 2]>,
    /// Distance between two taps of a window.
    pub dilation: usize,
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// f; the identity where there is none.
    pub activation: Option<Activation>,
}

impl Conv1d {
    /// `out` channels: stride 1, no padding, with a bias.
    pub fn new(out: usize, kernel: usize) -> Self {
        Self { out, kernel, stride: 1, padding: Some([0; 2]), dilation: 1, groups: 1, bias: true, activation: None }
    }
}

impl Layer for Conv1d {
    fn kind(&self) -> &'static str {
        "conv1d"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let &[n, channels, length] = graph.shape(x).dims() else {
            let sample = Shape::from(&graph.shape(x).dims()[1..]);
            let message = format!("expected samples of shape [channels, length], got {sample}");
            return Err(Error::shape(self.kind(), message));
        };
        let image = Conv2d {
            out: self.out,
            kernel: [1, self.kernel],
            stride: [1, self.stride],
            padding: self.padding.map_or(Padding::Same, |[front, behind]| Padding::Sides([0, 0, front, behind])),
            dilation: [1, self.dilation],
            groups: self.groups,
            bias: self.bias,
            activation: self.activation,
        };
        let conv = image.op(self.kind(), [channels, 1, length])?;
        let taps = channels / self.groups;
        let init = Init::KaimingNormal { fan_in: taps.saturating_mul(self.kernel) };
        let weight = graph.parameter("weight", [self.out, taps, self.kernel], init)?;
        let x = graph.apply(op::Reshape([n, channels, 1, length].into()), &[x])?;
        let weight = graph.apply(op::Reshape([self.out, taps, 1, self.kernel].into()), &[weight])?;
        let mut inputs = vec![x, weight];
        if self.bias {
            inputs.push(graph.parameter("bias", [self.out], Init::Zeros)?);
        }
        let y = graph.apply(conv, &inputs)?;
        let length = graph.shape(y)[3];
        graph.apply(op::Reshape([n, self.out, length].into()), &[y])
    }

    fn with_activation(&self, activation: Activation) -> Option<Arc<dyn Layer>> {
        self.activation.is_none().then(|| Arc::new(Self { activation: Some(activation), ..*self }) as _)
    }
}
