//! A transformer for images.

use super::transformer::Transformer;
use crate::error::{Error, Result};
use crate::nn::Sequential;
use crate::nn::layers::{
    Activation, Conv2d, Dropout, LayerNorm, Linear, MeanPositions, Positions, SelfAttention, Sequence,
};
use crate::tensor::Shape;

/// A vision transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021): images (C, H, W) cut into square
/// patches, through pre-norm blocks, to `classes` logits. The head sees the mean of all patches; there is no class
/// token (section D.3 of the paper: as good).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vit {
    /// Number of logits.
    pub classes: usize,
    /// Height and width of a patch; divide those of the image.
    pub patch: usize,
    /// Channels.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Attention heads; divides the channels.
    pub heads: usize,
    /// Probability of dropout behind the patches, attention and MLP.
    pub dropout: f32,
}

impl Vit {
    /// A network of this shape without dropout.
    pub const fn new(classes: usize, patch: usize, width: usize, depth: usize, heads: usize) -> Self {
        Self { classes, patch, width, depth, heads, dropout: 0.0 }
    }

    /// ViT-B/16: 86,566,120 parameters for 224×224 pixels and 1000 classes (the paper's less the class token).
    pub const fn base16(classes: usize) -> Self {
        Self::new(classes, 16, 768, 12, 12)
    }

    /// The network for images (C, H, W).
    ///
    /// # Errors
    /// When patches do not cover the image exactly, or there is no block.
    pub fn build(&self, input: impl Into<Shape>) -> Result<Sequential> {
        let input = input.into();
        let patches = |extent: &usize| self.patch > 0 && extent.is_multiple_of(self.patch);
        if input.rank() != 3 || !input.dims()[1..].iter().all(patches) {
            let message =
                format!("expected one that divides the height and width of the image, got {} for {input}", self.patch);
            return Err(Error::invalid("patch of a ViT", message));
        }
        if self.depth == 0 {
            return Err(Error::invalid("depth of a ViT", "expected at least 1 block, got 0"));
        }
        let transformer = Transformer {
            depth: self.depth,
            width: self.width,
            attention: SelfAttention::new(self.heads),
            activation: Activation::Gelu,
            dropout: self.dropout,
            deviation: None,
        };
        Ok(Sequential::new(input)
            .layer(Conv2d::new(self.width, self.patch).stride(self.patch))
            .named("patches")
            .layer(Sequence)
            .layer(Positions)
            .layer(Dropout { probability: self.dropout })
            .layer(transformer.blocks())
            .named("blocks")
            .layer(LayerNorm::default())
            .layer(MeanPositions)
            .layer(Linear::new(self.classes)))
    }
}
