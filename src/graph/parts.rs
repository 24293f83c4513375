//! What a graph holds: its values and where they come from.

use std::sync::Arc;

use super::{Init, Role};
use crate::op::{Op, ValueId};
use crate::tensor::{HostTensor, Shape, TensorType};

/// A parameter, by its position in [`Graph::parameters`](super::Graph::parameters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub usize);

/// A tensor that belongs to the model: trained, or kept beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Unique name (`fc1.weight`); seeds its initial values and names it in checkpoints.
    pub name: String,
    /// Dimensions; always f32.
    pub shape: Shape,
    /// Initial values.
    pub init: Init,
    /// What changes it.
    pub role: Role,
    /// The value that stands for it.
    pub value: ValueId,
}

/// A tensor that the host fills, before each micro-batch or once.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Its name (`input`, `target`, `weight`).
    pub name: String,
    /// The value that stands for it.
    pub value: ValueId,
    /// What it is filled with once, where it is a constant.
    pub constant: Option<Arc<HostTensor>>,
}

/// A tensor that stays on the device from run to run, zero before the first; ops that work in place change it.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// Its name.
    pub name: String,
    /// The value that stands for it.
    pub value: ValueId,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The input of this index.
    Input(usize),
    /// A parameter.
    Parameter(ParameterId),
    /// The tensor of this index that stays.
    Carried(usize),
    /// An output of a node.
    Node {
        /// Index in [`Graph::nodes`](super::Graph::nodes).
        node: usize,
        /// Which of its outputs.
        output: usize,
    },
}

/// A value: its type and where it comes from.
#[derive(Debug, Clone)]
pub struct Value {
    /// Type.
    pub ty: TensorType,
    /// Origin.
    pub source: Source,
}

/// An op applied to values.
#[derive(Debug, Clone)]
pub struct Node {
    /// The op.
    pub op: Arc<dyn Op>,
    /// Its inputs.
    pub inputs: Vec<ValueId>,
    /// Its outputs.
    pub outputs: Vec<ValueId>,
    /// The layer it belongs to, for messages, labels and traces.
    pub scope: String,
}

/// Where a value is summed to over the micro-batches of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accumulator {
    /// The gradient of a trained parameter; of a running one, the sum that its [`Running`](super::Running) says.
    Gradient(ParameterId),
    /// A scalar statistic, by index.
    Statistic(usize),
}
