//! A network of depthwise separable convolutions.

use super::Norm;
use crate::nn::layers::{Activation, Conv2d, GlobalAvgPool, Linear};
use crate::nn::{Block, Sequential};
use crate::tensor::{Shape, TensorType};

/// MobileNet, the first version (Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
/// Applications", 2017): images (C, H, W) to `classes` logits; 4,231,976 parameters for 1000 classes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MobileNet {
    /// Number of logits.
    pub classes: usize,
    /// Factor on the channels of every layer.
    pub width: f32,
    /// Stride of the first convolution: 2 for photographs, 1 for images of few pixels.
    pub stride: usize,
    /// What stands behind each convolution.
    pub norm: Norm,
}

/// Channels and stride of each pointwise convolution.
const LAYERS: [(usize, usize); 13] = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
];

impl MobileNet {
    /// The network of the paper, with batch norm over groups of 32 samples.
    pub const fn new(classes: usize) -> Self {
        Self { classes, width: 1.0, stride: 2, norm: Norm::Batch(32) }
    }

    /// The same with another normalisation.
    pub const fn norm(self, norm: Norm) -> Self {
        Self { norm, ..self }
    }

    /// The network for images (C, H, W).
    pub fn build(&self, input: impl Into<Shape>) -> Sequential {
        let scaled = |channels: usize| ((channels as f32 * self.width).round() as usize).max(1);
        let mut channels = scaled(32);
        let stem = Conv2d::new(channels, 3).padding(1).stride(self.stride);
        let mut block = self.norm.after(Block::new(), stem).layer(Activation::Relu);
        for (out, stride) in LAYERS {
            let depthwise = Conv2d { groups: channels, ..Conv2d::new(channels, 3).padding(1).stride(stride) };
            block = self.norm.after(block, depthwise).layer(Activation::Relu);
            channels = scaled(out);
            block = self.norm.after(block, Conv2d::new(channels, 1)).layer(Activation::Relu);
        }
        let block = block.layer(GlobalAvgPool).layer(Linear::new(self.classes));
        Sequential::of(TensorType::f32(input), block)
    }
}
