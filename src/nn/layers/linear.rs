//! Fully connected layer.

use std::sync::Arc;

use super::{Activation, Layer};
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::{MatMul, ValueId};

/// x (N, in) or (N, T, in) → f(x·weightᵀ + bias), out in place of in. Parameters as in PyTorch: `weight` (out, in), He
/// normal, and `bias` (out), zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    /// Number of outputs.
    pub out: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// f; the identity where there is none.
    pub activation: Option<Activation>,
}

impl Linear {
    /// `out` outputs, with a bias.
    pub const fn new(out: usize) -> Self {
        Self { out, bias: true, activation: None }
    }
}

impl Layer for Linear {
    fn kind(&self) -> &'static str {
        "linear"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let shape = graph.shape(x);
        let features = match *shape.dims() {
            [_, features] | [_, _, features] => features,
            _ => {
                let sample = crate::tensor::Shape::from(&shape.dims()[1..]);
                let message =
                    format!("expected samples of shape [features], got {sample}; put a flatten layer in front");
                return Err(Error::shape(self.kind(), message));
            }
        };
        if self.out == 0 {
            return Err(Error::shape(self.kind(), "expected at least 1 output, got out = 0"));
        }
        let weight = graph.parameter("weight", [self.out, features], Init::KaimingNormal { fan_in: features })?;
        let mut inputs = vec![x, weight];
        if self.bias {
            inputs.push(graph.parameter("bias", [self.out], Init::Zeros)?);
        }
        let op = MatMul { transpose_a: false, transpose_b: true, bias: self.bias, activation: self.activation };
        graph.apply(op, &inputs)
    }

    fn with_activation(&self, activation: Activation) -> Option<Arc<dyn Layer>> {
        self.activation.is_none().then(|| Arc::new(Self { activation: Some(activation), ..*self }) as _)
    }
}
