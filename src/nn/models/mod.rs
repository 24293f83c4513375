//! Ready models: well-known networks as recipes over the layers. Each gives a [`super::Sequential`], to which further
//! layers may be added; `examples/` has run files that give the same networks without Rust.

mod autoencoder;
mod gpt;
mod mobilenet;
mod plain;
mod resnet;
#[cfg(test)]
mod tests;
mod transformer;
mod vit;

pub use autoencoder::Autoencoder;
pub use gpt::Gpt;
pub use mobilenet::MobileNet;
pub use plain::{lenet, mlp};
pub use resnet::{ResNet, Stem};
pub use vit::Vit;

use std::sync::Arc;

use super::layers::{BatchNorm, Conv2d, GroupNorm};
use super::{Block, Layer};

/// How a network normalises its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// By mean and variance of this many consecutive samples of the batch ([`BatchNorm`]): what these networks were
    /// first trained with. Devices get whole groups.
    Batch(usize),
    /// In at most this many groups of channels of a sample (Wu and He, "Group Normalization", 2018): as many as divide
    /// the channels.
    Group(usize),
}

impl Norm {
    /// The layer for this many channels.
    fn layer(self, channels: usize) -> Arc<dyn Layer> {
        match self {
            Self::Batch(group) => Arc::new(BatchNorm::of(group)),
            Self::Group(most) => {
                let groups = (1..=most.min(channels)).rev().find(|groups| channels.is_multiple_of(*groups));
                Arc::new(GroupNorm::new(groups.unwrap_or(1)))
            }
        }
    }

    /// `block` with a convolution without bias and its normalisation behind it.
    fn after(self, mut block: Block, conv: Conv2d) -> Block {
        let channels = conv.out;
        block.push(Arc::new(Conv2d { bias: false, ..conv }));
        block.push(self.layer(channels));
        block
    }
}
