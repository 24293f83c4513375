//! Dropout.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{self, ValueId};
use crate::rng::key_for;

/// Drops each element with a probability in [`Mode::Train`] and scales the others up; does nothing in other modes.
/// Masks are keyed by the layer's name, so they differ between layers and survive other layers being added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Probability that an element is dropped, in [0, 1).
    pub probability: f32,
}

impl Layer for Dropout {
    fn kind(&self) -> &'static str {
        "dropout"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        if !(0.0..1.0).contains(&self.probability) {
            let message = format!("expected a probability of at least 0 and below 1, got {}", self.probability);
            return Err(Error::shape(self.kind(), message));
        }
        if mode != Mode::Train || self.probability == 0.0 {
            return Ok(x);
        }
        let site = key_for(0, graph.scope())[0];
        graph.apply(op::Dropout { probability: self.probability, site }, &[x])
    }
}
