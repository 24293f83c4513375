//! Between images and sequences.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{self, ValueId, reduce};
use crate::tensor::Shape;

/// x (N, C, ..) → (N, T, C): each of the T positions of an image or line as an element of a sequence, row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence;

/// x (N, T, C) → (N, C): the mean over the positions of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanPositions;

impl Layer for Sequence {
    fn kind(&self) -> &'static str {
        "sequence"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let [batch, channels, ref positions @ ..] = *graph.shape(x).dims() else { return Err(self.mismatch(graph, x)) };
        if positions.is_empty() {
            return Err(self.mismatch(graph, x));
        }
        let flat = Shape::from([batch, channels, positions.iter().product()]);
        let flat = graph.apply(op::Reshape(flat), &[x])?;
        graph.apply(op::Transpose { axes: vec![0, 2, 1] }, &[flat])
    }
}

impl Sequence {
    fn mismatch(self, graph: &Graph, x: ValueId) -> Error {
        let sample = Shape::from(graph.shape(x).dims().get(1..).unwrap_or_default());
        Error::shape(self.kind(), format!("expected samples of shape [channels, positions, ..], got {sample}"))
    }
}

impl Layer for MeanPositions {
    fn kind(&self) -> &'static str {
        "mean_positions"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        if graph.shape(x).rank() != 3 {
            let sample = Shape::from(graph.shape(x).dims().get(1..).unwrap_or_default());
            return Err(Error::shape(self.kind(), format!("expected samples of shape [T, C], got {sample}")));
        }
        reduce::mean(graph, x, &[1], false)
    }
}
