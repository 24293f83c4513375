//! Small feed-forward networks.

use crate::nn::Sequential;
use crate::nn::layers::Padding;
use crate::tensor::Shape;

/// A multilayer perceptron: samples of any shape, made flat, through layers of these widths with ReLU, to `classes`
/// logits.
pub fn mlp(input: impl Into<Shape>, hidden: &[usize], classes: usize) -> Sequential {
    let flat = Sequential::new(input).flatten();
    hidden.iter().fold(flat, |model, &width| model.linear(width).relu()).linear(classes)
}

/// A convolutional network in the manner of LeNet-5 (LeCun et al., "Gradient-Based Learning Applied to Document
/// Recognition", 1998), with ReLU and maxima as is usual today: images (C, H, W) of at least 12×12 pixels to `classes`
/// logits.
pub fn lenet(input: impl Into<Shape>, classes: usize) -> Sequential {
    Sequential::new(input)
        .conv2d(6, 5, Padding::Same)
        .relu()
        .max_pool2d(2)
        .conv2d(16, 5, 0)
        .relu()
        .max_pool2d(2)
        .flatten()
        .linear(120)
        .relu()
        .linear(84)
        .relu()
        .linear(classes)
}
