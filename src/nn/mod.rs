//! Networks: layers, losses and what trains, evaluates or runs them as graphs. Everything here is made of ops; there
//! are no kernels, and nothing here may know plans, devices or data sets.
//!
//! A [`Model`] is a recipe: it is run once for each micro-batch size and mode, and appends its ops to a graph.

mod block;
mod graphs;
mod init;
pub mod layers;
mod loss;
pub mod models;
mod scaled;
mod sequential;
#[cfg(test)]
mod tests;

pub use block::Block;
pub use graphs::{decoding_graph, training_graph};
pub(crate) use graphs::{evaluation_graph, prediction_graph};
pub use init::initial_values;
pub use layers::Layer;
pub(crate) use loss::statistic_names;
pub use loss::{CrossEntropy, Loss};
pub use scaled::Scaled;
pub use sequential::Sequential;

use crate::error::Result;
use crate::graph::Graph;
use crate::op::ValueId;
use crate::tensor::{Shape, TensorType};

/// What a graph is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Training: dropout drops, batch norm normalises by the batch.
    Train,
    /// Evaluation and prediction: every layer is deterministic, and no sample's result depends on the others.
    Inference,
    /// One token after the other, as [`Mode::Inference`]: a sample is one step of a sequence, and what layers need of
    /// the steps before it they carry from run to run ([`Graph::carried`]). Only where [`Layer::decodes`].
    Decode(Decode),
}

/// Which step of a sequence is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decode {
    /// Most steps of a sequence.
    pub capacity: usize,
    /// u32 \[1\]: the step's number, from 0.
    pub position: ValueId,
    /// u32 \[1\]: steps up to this one, with it.
    pub length: ValueId,
}

/// A network, as a recipe that is run for each micro-batch size. Parameters, their names, order, shapes and initial
/// values must not depend on batch or mode.
///
/// Most networks are a [`Sequential`], with [`layers::Residual`] and [`layers::Repeat`] where paths part. One whose
/// values go other ways is written over the graph: layers and ops as they come, each layer in a scope that names its
/// parameters.
///
/// ```
/// use everygpu::graph::Graph;
/// use everygpu::nn::layers::{Activation, Linear};
/// use everygpu::nn::{Layer, Loss, Mode, Model, training_graph};
/// use everygpu::op::{Concat, ValueId};
/// use everygpu::prelude::*;
///
/// /// Features [4] → logits [3]: each layer sees the outputs of all those in front of it.
/// struct Dense;
///
/// impl Model for Dense {
///     fn input(&self) -> TensorType {
///         TensorType::f32([4])
///     }
///
///     fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
///         let mut seen = x;
///         for layer in ["first", "second"] {
///             let y = graph.scoped(layer, |graph| Linear::new(8).forward(graph, seen, mode))?;
///             let y = graph.apply(Activation::Tanh, &[y])?;
///             seen = graph.apply(Concat { axis: 1 }, &[seen, y])?;
///         }
///         graph.scoped("head", |graph| Linear::new(3).forward(graph, seen, mode))
///     }
/// }
///
/// let graph = training_graph(&Dense, &Loss::cross_entropy(), &TensorType::u32([]), 16)?;
/// assert_eq!(graph.parameters()[2].name, "second.weight");
/// assert_eq!(graph.parameters()[2].shape, Shape::from([8, 4 + 8]));
/// // For training: Task::classification(Dense).
/// # Ok::<(), Error>(())
/// ```
pub trait Model: Send + Sync {
    /// The type of one sample, without a batch dimension.
    fn input(&self) -> TensorType;

    /// Appends the network to `graph`: from `x` (N, ..input) to the logits or values (N, ..).
    ///
    /// # Errors
    /// When a layer cannot work on its input; the message names the layer.
    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId>;

    /// Whether it works in [`Mode::Decode`].
    fn decodes(&self) -> bool {
        false
    }
}

/// The shape that `model` gives for one sample, without a batch dimension.
///
/// # Errors
/// When a layer cannot work on its input; the message names the layer.
pub fn output_shape(model: &dyn Model) -> Result<Shape> {
    let mut graph = Graph::new();
    let input = model.input();
    let x = graph.input("input", TensorType { shape: input.shape.batched(1), dtype: input.dtype });
    let y = model.forward(&mut graph, x, Mode::Inference)?;
    Ok(Shape::from(&graph.shape(y).dims()[1..]))
}
