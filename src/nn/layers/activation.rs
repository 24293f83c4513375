//! Nonlinearities.

use super::{Activation, Layer};
use crate::error::Result;
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::ValueId;

impl Layer for Activation {
    fn kind(&self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Gelu => "gelu",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::LeakyRelu(_) => "leaky_relu",
            Self::Elu(_) => "elu",
            Self::GeluTanh => "gelu_tanh",
            Self::Silu => "silu",
            Self::Mish => "mish",
            Self::Softplus => "softplus",
        }
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        graph.apply(*self, &[x])
    }

    fn as_activation(&self) -> Option<Activation> {
        Some(*self)
    }
}
