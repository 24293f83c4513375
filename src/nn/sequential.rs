//! Layers one after the other.

use std::sync::Arc;

use super::layers::{
    Activation, AvgPool2d, BatchNorm, Conv2d, Dropout, Flatten, Initializer, Layer, Linear, MaxPool2d, Padding,
    Reshape, Softmax,
};
use super::{Block, Mode, Model};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::ValueId;
use crate::tensor::{Shape, TensorType};

/// Layers one after the other, built fluently:
///
/// ```
/// # use everygpu::nn::Sequential;
/// let model = Sequential::new([1, 8, 8]).flatten().linear(64).relu().dropout(0.1).linear(10);
/// ```
///
/// A layer without a name of its own is named after its kind and its number among those of its kind, from 1
/// (`linear_2`), so that parameters keep their names when layers without parameters are added. Parameters are named
/// `LAYER.weight`, `LAYER.bias`. Messages count all layers from 1, as a reader of a run file does.
///
/// An activation directly after a linear or convolutional layer becomes part of that layer's kernel (except in training
/// where its derivative needs the value in front of it, which would then be computed twice).
#[derive(Debug, Clone)]
pub struct Sequential {
    input: TensorType,
    block: Block,
}

impl Sequential {
    /// No layer yet, for f32 samples of this shape (without a batch dimension).
    pub fn new(input: impl Into<Shape>) -> Self {
        Self { input: TensorType::f32(input), block: Block::default() }
    }

    /// No layer yet, for sequences of `length` tokens.
    pub fn tokens(length: usize) -> Self {
        Self::over(TensorType::u32([length]))
    }

    /// No layer yet, for samples of this type (without a batch dimension).
    pub fn over(input: TensorType) -> Self {
        Self::of(input, Block::default())
    }

    /// The layers of `block`, for samples of this type (without a batch dimension).
    pub fn of(input: TensorType, block: Block) -> Self {
        Self { input, block }
    }

    /// Adds `layer`.
    pub fn layer(self, layer: impl Layer + 'static) -> Self {
        self.shared(Arc::new(layer))
    }

    /// Adds a layer that may stand in several networks.
    pub fn shared(mut self, layer: Arc<dyn Layer>) -> Self {
        self.block.push(layer);
        self
    }

    /// Names the layer added last; its parameters are then `name.weight` and so on.
    pub fn named(mut self, name: &str) -> Self {
        self.block.name_last(name);
        self
    }

    /// Lets the weights of the layer added last (its parameters of two dimensions or more) start as `initializer` says.
    pub fn init(mut self, initializer: Initializer) -> Self {
        self.block.initialize_last(initializer);
        self
    }

    /// Adds a fully connected layer with `out` outputs.
    pub fn linear(self, out: usize) -> Self {
        self.layer(Linear::new(out))
    }

    /// Adds a convolution with `out` channels and a square kernel, stride 1. See [`Conv2d`] for the other attributes.
    pub fn conv2d(self, out: usize, kernel: usize, padding: impl Into<Padding>) -> Self {
        self.layer(Conv2d::new(out, kernel).padding(padding))
    }

    /// Adds a maximum over square windows side by side.
    pub fn max_pool2d(self, kernel: usize) -> Self {
        self.layer(MaxPool2d::new(kernel))
    }

    /// Adds a mean over square windows side by side.
    pub fn avg_pool2d(self, kernel: usize) -> Self {
        self.layer(AvgPool2d::new(kernel))
    }

    /// Adds batch norm over groups of 32 samples. See [`BatchNorm`] for its attributes.
    pub fn batch_norm(self) -> Self {
        self.layer(BatchNorm::default())
    }

    /// Makes each sample one row of features.
    pub fn flatten(self) -> Self {
        self.layer(Flatten)
    }

    /// Gives each sample another shape.
    pub fn reshape(self, shape: impl Into<Shape>) -> Self {
        self.layer(Reshape(shape.into()))
    }

    /// Adds max(x, 0).
    pub fn relu(self) -> Self {
        self.layer(Activation::Relu)
    }

    /// Adds x Φ(x).
    pub fn gelu(self) -> Self {
        self.layer(Activation::Gelu)
    }

    /// Adds tanh(x).
    pub fn tanh(self) -> Self {
        self.layer(Activation::Tanh)
    }

    /// Adds 1 / (1 + exp(−x)).
    pub fn sigmoid(self) -> Self {
        self.layer(Activation::Sigmoid)
    }

    /// Adds dropout with this probability.
    pub fn dropout(self, probability: f32) -> Self {
        self.layer(Dropout { probability })
    }

    /// Adds probabilities along the last dimension; not for a model that is trained with cross-entropy.
    pub fn softmax(self) -> Self {
        self.layer(Softmax)
    }

    /// The layers.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The layers, as a layer of another network.
    pub fn into_block(self) -> Block {
        self.block
    }
}

impl Model for Sequential {
    fn input(&self) -> TensorType {
        self.input.clone()
    }

    fn decodes(&self) -> bool {
        self.block.decodes()
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        if self.block.is_empty() {
            return Err(Error::shape("model", "expected at least one layer, got none"));
        }
        self.block.run(graph, x, mode)
    }
}
