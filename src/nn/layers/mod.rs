//! Layers: what a [`super::Sequential`] is made of. Each declares its parameters under the graph's current scope and
//! appends its ops. A layer says what is wrong with its input; the network that holds it says which layer it is.

mod activation;
mod attention;
mod batch_norm;
mod compose;
mod conv1d;
mod conv2d;
mod conv_transpose2d;
mod dropout;
mod embedding;
mod global_pool;
mod initialized;
mod linear;
mod normalize;
mod pool2d;
mod recurrent;
mod reshape;
mod sequence;
mod tied;
mod upsample;
mod window;

use std::fmt::Debug;
use std::sync::Arc;

pub use attention::SelfAttention;
pub use batch_norm::BatchNorm;
pub(super) use compose::within;
pub use compose::{Repeat, Residual};
pub use conv_transpose2d::ConvTranspose2d;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use dropout::Dropout;
pub use embedding::{Embedding, Positions};
pub use global_pool::{GlobalAvgPool, GlobalMaxPool};
pub use initialized::Initialized;
pub use linear::Linear;
pub use normalize::{GroupNorm, LayerNorm, RmsNorm};
pub use pool2d::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use recurrent::Recurrent;
pub use reshape::{Flatten, Reshape};
pub use sequence::{MeanPositions, Sequence};
pub use tied::TiedLinear;
pub use upsample::{Resolution, Upsample};
pub use window::Padding;

pub use crate::graph::Initializer;
pub use crate::op::{Activation, Cell, Interpolation};

use super::Mode;
use crate::error::Result;
use crate::graph::Graph;
use crate::op::{self, ValueId};

/// A layer.
pub trait Layer: Debug + Send + Sync {
    /// What it is, as run files spell it (`conv2d`).
    fn kind(&self) -> &'static str;

    /// Appends the layer to `graph`, whose scope is the layer's name.
    ///
    /// # Errors
    /// When the layer cannot work on `x`; the message says what was expected and what was given.
    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId>;

    /// Whether it works in [`Mode::Decode`]: because it treats each step of a sequence alone, or carries what it needs
    /// of the steps before.
    fn decodes(&self) -> bool {
        false
    }

    /// The nonlinearity that it is, so that the layer in front may take it into its own kernel.
    fn as_activation(&self) -> Option<Activation> {
        None
    }

    /// The same layer with `activation` in its kernel, where it has none yet and can have one.
    fn with_activation(&self, _activation: Activation) -> Option<Arc<dyn Layer>> {
        None
    }
}

/// Probabilities along the last dimension. The cross-entropy loss has its own: a model that is trained with it ends in
/// logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softmax;

impl Layer for Softmax {
    fn kind(&self) -> &'static str {
        "softmax"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        graph.apply(op::Softmax, &[x])
    }
}
