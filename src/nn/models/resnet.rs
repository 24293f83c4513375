//! Residual networks for images.

use std::sync::Arc;

use super::Norm;
use crate::error::{Error, Result};
use crate::nn::layers::{Activation, Conv2d, GlobalAvgPool, Linear, MaxPool2d, Residual};
use crate::nn::{Block, Sequential};
use crate::tensor::{Shape, TensorType};

/// A residual network (He et al., "Deep Residual Learning for Image Recognition", 2016): images (C, H, W) to `classes`
/// logits. Where channels or resolution change, the shortcut is a 1×1 convolution (their option B); in bottlenecks the
/// 3×3 convolution has the stride, as is usual since. The builders have batch norm over groups of 32 samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNet {
    /// Number of logits.
    pub classes: usize,
    /// How the image comes in.
    pub stem: Stem,
    /// Blocks of each stage; from one stage to the next, channels double and height and width halve.
    pub stages: Vec<usize>,
    /// Channels of the stem and of the first stage's 3×3 convolutions.
    pub width: usize,
    /// Whether a block is 1×1, 3×3, 1×1 convolutions with four times the channels at its end; else 3×3, 3×3.
    pub bottleneck: bool,
    /// What stands behind each convolution.
    pub norm: Norm,
}

/// The first layers of a [`ResNet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stem {
    /// 7×7 convolution and maximum over 3×3, each of stride 2: for photographs.
    Photograph,
    /// 3×3 convolution of stride 1: for images of few pixels.
    Small,
}

impl ResNet {
    fn photograph(stages: [usize; 4], bottleneck: bool, classes: usize) -> Self {
        let (stages, norm) = (stages.to_vec(), Norm::Batch(32));
        Self { classes, stem: Stem::Photograph, stages, width: 64, bottleneck, norm }
    }

    /// ResNet-18: 11,689,512 parameters for 1000 classes.
    pub fn resnet18(classes: usize) -> Self {
        Self::photograph([2, 2, 2, 2], false, classes)
    }

    /// ResNet-34: 21,797,672 parameters for 1000 classes.
    pub fn resnet34(classes: usize) -> Self {
        Self::photograph([3, 4, 6, 3], false, classes)
    }

    /// ResNet-50: 25,557,032 parameters for 1000 classes.
    pub fn resnet50(classes: usize) -> Self {
        Self::photograph([3, 4, 6, 3], true, classes)
    }

    /// ResNet-`depth` for small images as those of CIFAR (section 4.2 of the paper): `depth` is 6n + 2, such as 20
    /// or 56.
    ///
    /// # Errors
    /// When there is no such network.
    pub fn small(depth: usize, classes: usize) -> Result<Self> {
        if depth < 8 || !(depth - 2).is_multiple_of(6) {
            let message = format!("expected 8, 14, 20, 26, .. (6n + 2), got {depth}");
            return Err(Error::invalid("depth of a small ResNet", message));
        }
        let (stages, norm) = (vec![(depth - 2) / 6; 3], Norm::Batch(32));
        Ok(Self { classes, stem: Stem::Small, stages, width: 16, bottleneck: false, norm })
    }

    /// The same with another normalisation.
    pub fn norm(self, norm: Norm) -> Self {
        Self { norm, ..self }
    }

    /// The network for images (C, H, W).
    pub fn build(&self, input: impl Into<Shape>) -> Sequential {
        let conv = Conv2d::new(self.width, if self.stem == Stem::Small { 3 } else { 7 });
        let mut block = match self.stem {
            Stem::Small => self.norm.after(Block::new(), conv.padding(1)).layer(Activation::Relu),
            Stem::Photograph => self
                .norm
                .after(Block::new(), conv.padding(3).stride(2))
                .layer(Activation::Relu)
                .layer(MaxPool2d { stride: [2; 2], padding: 1.into(), ..MaxPool2d::new(3) }),
        };
        let mut channels = self.width;
        for (stage, &blocks) in self.stages.iter().enumerate() {
            for index in 0..blocks {
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                block.push(Arc::new(self.residual(channels, self.width << stage, stride)));
                block = block.layer(Activation::Relu);
                channels = self.channels(stage);
            }
        }
        let block = block.layer(GlobalAvgPool).layer(Linear::new(self.classes));
        Sequential::of(TensorType::f32(input), block)
    }

    /// Channels that a stage gives.
    fn channels(&self, stage: usize) -> usize {
        (self.width << stage) * if self.bottleneck { 4 } else { 1 }
    }

    /// A block of `width` channels for an input of `channels`.
    fn residual(&self, channels: usize, width: usize, stride: usize) -> Residual {
        let norm = self.norm;
        let three = Conv2d::new(width, 3).padding(1);
        let (body, out) = if self.bottleneck {
            let body = norm.after(Block::new(), Conv2d::new(width, 1)).layer(Activation::Relu);
            let body = norm.after(body, three.stride(stride)).layer(Activation::Relu);
            (norm.after(body, Conv2d::new(4 * width, 1)), 4 * width)
        } else {
            let body = norm.after(Block::new(), three.stride(stride)).layer(Activation::Relu);
            (norm.after(body, three), width)
        };
        if stride == 1 && channels == out {
            return Residual::new(body);
        }
        Residual::new(body).shortcut(norm.after(Block::new(), Conv2d::new(out, 1).stride(stride)))
    }
}
