//! An output head that shares its weight with an embedding.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{MatMul, ValueId};

/// x (N, .., C) → x · weightᵀ (N, .., V) with the `weight` (V, C) of the layer `to`, an embedding in front of it or
/// another layer with such a weight (Press and Wolf, "Using the Output Embedding to Improve Language Models", 2017).
/// The gradients of both uses add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TiedLinear {
    /// The layer's name, seen from the network or block that this layer stands in, or from one around it.
    pub to: String,
}

impl TiedLinear {
    /// Tied to the layer of this name.
    pub fn new(to: &str) -> Self {
        Self { to: to.to_owned() }
    }
}

impl Layer for TiedLinear {
    fn kind(&self) -> &'static str {
        "tied_linear"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let Some(weight) = graph.find_parameter(&format!("{}.weight", self.to)) else {
            let names: Vec<_> = graph.parameters().iter().filter_map(|p| p.name.strip_suffix(".weight")).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let message =
                format!("expected the name of a layer in front of it with a weight ({known}), got '{}'", self.to);
            return Err(Error::shape(self.kind(), message));
        };
        let (weights, shape) = (graph.shape(weight), graph.shape(x));
        if weights.rank() != 2 || shape.rank() < 2 || shape.dims().last() != weights.dims().last() {
            let message = format!("the weight {weights} of '{}' does not go with an input {shape}", self.to);
            return Err(Error::shape(self.kind(), message));
        }
        graph.apply(MatMul { transpose_b: true, ..MatMul::default() }, &[x, weight])
    }
}
