//! A network that learns to give its input back.

use crate::error::{Error, Result};
use crate::nn::Sequential;
use crate::nn::layers::{Activation, Conv2d, ConvTranspose2d};
use crate::tensor::Shape;

/// A convolutional autoencoder: images (C, H, W) through 3×3 convolutions of stride 2 with these channels, and through
/// transposed ones back to (C, H, W). It is trained with the mean squared error against its own input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autoencoder {
    /// Channels of the encoder's layers; height and width halve with each, rounded up.
    pub widths: Vec<usize>,
}

impl Autoencoder {
    /// An encoder with layers of these channels.
    pub fn new(widths: &[usize]) -> Self {
        Self { widths: widths.to_vec() }
    }

    /// The network for images (C, H, W).
    ///
    /// # Errors
    /// When the samples are no images, or there is no layer.
    pub fn build(&self, input: impl Into<Shape>) -> Result<Sequential> {
        let input = input.into();
        let [channels, height, width] = *input.dims() else {
            let message = format!("expected samples of shape [channels, height, width], got {input}");
            return Err(Error::invalid("input of an autoencoder", message));
        };
        if self.widths.is_empty() {
            return Err(Error::invalid("widths of an autoencoder", "expected at least 1 layer, got none"));
        }
        // What the decoder has to give back: channels, height and width in front of each layer of the encoder.
        let mut images = Vec::new();
        let (mut channels, mut size) = (channels, [height, width]);
        let mut model = Sequential::new(input);
        for &out in &self.widths {
            images.push((channels, size));
            channels = out;
            size = size.map(|extent| extent.div_ceil(2));
            model = model.layer(Conv2d::new(out, 3).stride(2).padding(1)).relu();
        }
        for (index, (out, size)) in images.into_iter().enumerate().rev() {
            // Twice the extent less one without it.
            let output_padding = size.map(|extent| usize::from(extent % 2 == 0));
            let up =
                ConvTranspose2d { stride: [2; 2], padding: [1; 4], output_padding, ..ConvTranspose2d::new(out, 3) };
            model = model.layer(up);
            if index > 0 {
                model = model.layer(Activation::Relu);
            }
        }
        Ok(model)
    }
}
