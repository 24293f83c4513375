//! Two-dimensional convolution.

use std::sync::Arc;

use super::window::{Padding, Window, image};
use super::{Activation, Layer};
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::{self, ValueId};

/// x (N, C, H, W) → f(x ∗ weight + bias) (N, out, OH, OW). Parameters as in PyTorch: `weight` (out, C/groups, KH, KW),
/// He normal, and `bias` (out), zero. Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    /// Number of output channels.
    pub out: usize,
    /// Extents of a window.
    pub kernel: [usize; 2],
    /// Distance between two windows.
    pub stride: [usize; 2],
    /// Zeros around the image.
    pub padding: Padding,
    /// Distance between two taps of a window.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// f; the identity where there is none.
    pub activation: Option<Activation>,
}

impl Conv2d {
    /// `out` channels through a square kernel: stride 1, no padding, with a bias.
    pub fn new(out: usize, kernel: usize) -> Self {
        Self {
            out,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: Padding::default(),
            dilation: [1; 2],
            groups: 1,
            bias: true,
            activation: None,
        }
    }

    /// The same with this padding.
    pub fn padding(self, padding: impl Into<Padding>) -> Self {
        Self { padding: padding.into(), ..self }
    }

    /// The same with this stride in both directions.
    pub fn stride(self, stride: usize) -> Self {
        Self { stride: [stride; 2], ..self }
    }

    /// The op for an image of these channels, height and width, checked; `kind` is the layer's, for messages.
    pub(super) fn op(&self, kind: &str, [channels, height, width]: [usize; 3]) -> Result<op::Conv2d> {
        let &Self { out, stride, dilation, groups, activation, .. } = self;
        if out == 0 {
            return Err(Error::shape(kind, "expected at least 1 output channel, got out = 0"));
        }
        if groups == 0 || channels % groups != 0 || out % groups != 0 {
            let message = format!("{channels} input and {out} output channels do not divide into {groups} groups");
            return Err(Error::shape(kind, message));
        }
        let window = Window { kernel: self.kernel, stride, padding: self.padding, dilation };
        let padding = window.padding(kind, [height, width])?;
        Ok(op::Conv2d { stride, padding, dilation, groups, activation })
    }
}

impl Layer for Conv2d {
    fn kind(&self) -> &'static str {
        "conv2d"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let [channels, height, width] = image(self.kind(), graph, x)?;
        let conv = self.op(self.kind(), [channels, height, width])?;
        let &Self { out, groups, .. } = self;
        let [kernel_height, kernel_width] = self.kernel;
        let fan_in = (channels / groups).saturating_mul(kernel_height).saturating_mul(kernel_width);
        let shape = [out, channels / groups, kernel_height, kernel_width];
        let mut inputs = vec![x, graph.parameter("weight", shape, Init::KaimingNormal { fan_in })?];
        if self.bias {
            inputs.push(graph.parameter("bias", [out], Init::Zeros)?);
        }
        graph.apply(conv, &inputs)
    }

    fn with_activation(&self, activation: Activation) -> Option<Arc<dyn Layer>> {
        self.activation.is_none().then(|| Arc::new(Self { activation: Some(activation), ..*self }) as _)
    }
}
