//! Layers that only change a sample's shape.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{self, ValueId};
use crate::tensor::Shape;

/// x (N, ..) → (N, elements of a sample).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flatten;

/// x (N, ..) → (N, ..shape); the shape has as many elements as a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshape(pub Shape);

impl Layer for Flatten {
    fn kind(&self) -> &'static str {
        "flatten"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let dims = graph.shape(x).dims();
        if dims.len() == 2 {
            return Ok(x);
        }
        let flat = [dims[0], Shape::from(&dims[1..]).elements()];
        graph.apply(op::Reshape(flat.into()), &[x])
    }
}

impl Layer for Reshape {
    fn kind(&self) -> &'static str {
        "reshape"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let shape = graph.shape(x);
        let sample = Shape::from(&shape.dims()[1..]);
        if sample.elements() != self.0.elements() {
            let (given, expected) = (sample.elements(), self.0.elements());
            let message = format!("expected samples of {expected} elements for {}, got {given} in {sample}", self.0);
            return Err(Error::shape(self.kind(), message));
        }
        let target = self.0.batched(shape[0]);
        graph.apply(op::Reshape(target), &[x])
    }
}
