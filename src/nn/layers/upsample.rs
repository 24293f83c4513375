//! Images at another resolution.

use super::window::{image, pair_text};
use super::{Interpolation, Layer};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{self, ValueId};

/// The resolution that an image is brought to; pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// This many times the image's.
    Scale([usize; 2]),
    /// This height and width.
    Size([usize; 2]),
}

/// x (N, C, H, W) → x at another resolution (N, C, OH, OW).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upsample {
    /// The resolution of the result.
    pub to: Resolution,
    /// How pixels in between come about.
    pub interpolation: Interpolation,
}

impl Layer for Upsample {
    fn kind(&self) -> &'static str {
        "upsample"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let [_, height, width] = image(self.kind(), graph, x)?;
        let size = match self.to {
            Resolution::Scale([vertical, horizontal]) => {
                [height.saturating_mul(vertical), width.saturating_mul(horizontal)]
            }
            Resolution::Size(size) => size,
        };
        if size.contains(&0) {
            return Err(Error::shape(self.kind(), format!("expected a size of at least 1, got {}", pair_text(size))));
        }
        graph.apply(op::Upsample2d { size, interpolation: self.interpolation }, &[x])
    }
}
