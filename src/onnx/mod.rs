//! ONNX, the format in which trained networks go to other programs (<https://onnx.ai>): what a model file holds, and
//! the [`Builder`] by which ops write themselves into one. Knows no op and no graph: [`crate::graph::to_onnx`] walks
//! the graph.
//!
//! Operators are those of opset 18. Unsigned integers (tokens, positions) are int64 in the file, the type that ONNX's
//! operators index by.

mod attribute;
mod builder;
mod model;
mod proto;
#[cfg(test)]
mod tests;

pub use attribute::Attribute;
pub use builder::{Builder, Value};
pub use model::{Model, Port};

use crate::error::{Error, Result};

/// A dimension of a tensor in a model that takes any number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    /// The same for every number of samples.
    Fixed(usize),
    /// So many for each sample.
    PerSample(usize),
}

impl Dim {
    /// Two numbers of samples from whose dimensions [`Dim::of`] tells what a dimension depends on.
    pub const SAMPLES: [usize; 2] = [2, 3];

    /// The dimension that has these extents for [`Dim::SAMPLES`] samples; `None` where it grows in another way.
    pub fn of(extents: [usize; 2]) -> Option<Self> {
        let [few, many] = extents;
        let [a, b] = Self::SAMPLES;
        match few == many {
            true => Some(Self::Fixed(few)),
            false => (few.is_multiple_of(a) && few / a * b == many).then_some(Self::PerSample(few / a)),
        }
    }

    /// The extent, where it does not depend on the number of samples.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Self::Fixed(extent) => Some(extent),
            Self::PerSample(_) => None,
        }
    }
}

/// A tensor that a node reads: its name in the model, and its dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub value: Value,
    /// Its dimensions.
    pub dims: Vec<Dim>,
}

/// What an op is given to write itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The op's inputs.
    pub inputs: Vec<Tensor>,
    /// The dimensions of its outputs.
    pub outputs: Vec<Vec<Dim>>,
}

impl Node {
    /// The name of input `index`.
    pub fn input(&self, index: usize) -> &Value {
        &self.inputs[index].value
    }

    /// The extent of input `index` along `axis`.
    ///
    /// # Errors
    /// When it grows with the samples.
    pub fn extent(&self, index: usize, axis: usize) -> Result<usize> {
        self.inputs[index].dims[axis].fixed().ok_or_else(|| {
            let message =
                format!("expected dimension {axis} of input {index} not to grow with the samples, but it does");
            Error::shape("ONNX", message)
        })
    }

    /// The names of all inputs.
    pub fn values(&self) -> Vec<&Value> {
        self.inputs.iter().map(|input| &input.value).collect()
    }
}
