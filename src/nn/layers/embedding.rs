//! Vectors for tokens and for positions.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::{self, Add, Emit, ValueId};
use crate::tensor::DType;

/// Standard deviation of initial vectors (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
const DEVIATION: f32 = 0.02;

/// Tokens u32 (N, ..) → their rows (N, .., width) of `weight` (vocabulary, width), normal with deviation 0.02.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedding {
    /// Number of tokens; a larger index counts as the last one.
    pub vocabulary: usize,
    /// Elements of a vector.
    pub width: usize,
}

/// Adds a learned vector to each position of (N, T, C): `weight` (T, C), normal with deviation 0.02.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions;

impl Layer for Embedding {
    fn kind(&self) -> &'static str {
        "embedding"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        if graph.type_of(x).dtype != DType::U32 {
            return Err(Error::shape(self.kind(), format!("expected tokens (u32), got {}", graph.type_of(x))));
        }
        if self.vocabulary == 0 || self.width == 0 {
            let message = format!("expected 1 token and 1 element or more, got {} and {}", self.vocabulary, self.width);
            return Err(Error::shape(self.kind(), message));
        }
        let init = Init::Normal { deviation: DEVIATION };
        let weight = graph.parameter("weight", [self.vocabulary, self.width], init)?;
        graph.apply(op::Embedding, &[weight, x])
    }
}

impl Layer for Positions {
    fn kind(&self) -> &'static str {
        "positions"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let [_, length, width] = *graph.shape(x).dims() else {
            let sample = crate::tensor::Shape::from(&graph.shape(x).dims()[1..]);
            return Err(Error::shape(self.kind(), format!("expected samples of shape [T, C], got {sample}")));
        };
        let init = Init::Normal { deviation: DEVIATION };
        if let Mode::Decode(decode) = mode {
            let weight = graph.parameter("weight", [decode.capacity, width], init)?;
            let vector = graph.apply(op::Embedding, &[weight, decode.position])?; // (1, C)
            return graph.apply(Add, &[x, vector]);
        }
        let weight = graph.parameter("weight", [length, width], init)?;
        graph.apply(Add, &[x, weight])
    }
}
