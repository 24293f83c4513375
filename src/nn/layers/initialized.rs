//! A layer whose weights start otherwise than the layer's own do.

use std::sync::Arc;

use super::{Activation, Layer};
use crate::error::Result;
use crate::graph::{Graph, Initializer};
use crate::nn::Mode;
use crate::op::ValueId;

/// `layer`, in all else, with weights (its parameters of two dimensions or more) that start as `initializer` says.
/// Weights that are stacked in one parameter, as those of attention and recurrent layers are, count as one matrix, as
/// in PyTorch.
#[derive(Debug, Clone)]
pub struct Initialized {
    /// The layer.
    pub layer: Arc<dyn Layer>,
    /// How its weights start.
    pub initializer: Initializer,
}

impl Layer for Initialized {
    fn kind(&self) -> &'static str {
        self.layer.kind()
    }

    fn decodes(&self) -> bool {
        self.layer.decodes()
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        graph.initialized(self.initializer, |graph| self.layer.forward(graph, x, mode))
    }

    fn as_activation(&self) -> Option<Activation> {
        self.layer.as_activation()
    }

    fn with_activation(&self, activation: Activation) -> Option<Arc<dyn Layer>> {
        let layer = self.layer.with_activation(activation)?;
        Some(Arc::new(Self { layer, initializer: self.initializer }))
    }
}
