//! Pools over all positions.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{ValueId, reduce};
use crate::tensor::Shape;

/// x (N, C, ..) → the mean of each channel (N, C).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalAvgPool;

/// x (N, C, ..) → the largest value of each channel (N, C); the gradient goes to the first where several are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalMaxPool;

/// The axes behind the channels.
fn positions(kind: &str, graph: &Graph, x: ValueId) -> Result<Vec<usize>> {
    let shape = graph.shape(x);
    if shape.rank() >= 3 && shape.elements() > 0 {
        return Ok((2..shape.rank()).collect());
    }
    let sample = Shape::from(shape.dims().get(1..).unwrap_or_default());
    Err(Error::shape(kind, format!("expected samples of shape [channels, positions, ..], got {sample}")))
}

impl Layer for GlobalAvgPool {
    fn kind(&self) -> &'static str {
        "global_avg_pool"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let axes = positions(self.kind(), graph, x)?;
        reduce::mean(graph, x, &axes, false)
    }
}

impl Layer for GlobalMaxPool {
    fn kind(&self) -> &'static str {
        "global_max_pool"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let axes = positions(self.kind(), graph, x)?;
        reduce::max(graph, x, &axes, false)
    }
}
