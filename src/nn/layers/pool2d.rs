//! Pools over windows of an image.

use super::Layer;
use super::window::{Padding, Window, image, pair_text};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::Mode;
use crate::op::{self, Emit, Pool, ValueId};

/// x (N, C, H, W) → the largest value of each window (N, C, OH, OW). Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxPool2d {
    /// Extents of a window.
    pub kernel: [usize; 2],
    /// Distance between two windows.
    pub stride: [usize; 2],
    /// What surrounds the image; it never wins.
    pub padding: Padding,
}

/// x (N, C, H, W) → the mean of each window (N, C, OH, OW). Pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvgPool2d {
    /// Extents of a window.
    pub kernel: [usize; 2],
    /// Distance between two windows.
    pub stride: [usize; 2],
    /// What surrounds the image.
    pub padding: Padding,
    /// Whether padding counts as zeros in the mean (PyTorch's default); otherwise it is left out.
    pub count_include_pad: bool,
}

/// x (N, C, H, W) → the mean of each of height × width windows that cover the image (N, C, height, width), as
/// PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    pub size: [usize; 2],
}

impl MaxPool2d {
    /// Square windows side by side.
    pub fn new(kernel: usize) -> Self {
        Self { kernel: [kernel; 2], stride: [kernel; 2], padding: Padding::default() }
    }
}

impl AvgPool2d {
    /// Square windows side by side.
    pub fn new(kernel: usize) -> Self {
        Self { kernel: [kernel; 2], stride: [kernel; 2], padding: Padding::default(), count_include_pad: true }
    }
}

/// The checked pool for `x`.
fn pool(
    kind: &str,
    (graph, x): (&Graph, ValueId),
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
) -> Result<Pool> {
    let [_, height, width] = image(kind, graph, x)?;
    let sides = Window { kernel, stride, padding, dilation: [1; 2] }.padding(kind, [height, width])?;
    if (0..4).any(|side| sides[side] >= kernel[side / 2]) {
        let message = format!("expected padding below the kernel {}, got {sides:?}", pair_text(kernel));
        return Err(Error::shape(kind, message));
    }
    Ok(Pool { kernel, stride, padding: sides })
}

impl Layer for MaxPool2d {
    fn kind(&self) -> &'static str {
        "max_pool2d"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let pool = pool(self.kind(), (graph, x), self.kernel, self.stride, self.padding)?;
        Ok(graph.emit_all(std::sync::Arc::new(op::MaxPool2d(pool)), &[x])?[0])
    }
}

impl Layer for AvgPool2d {
    fn kind(&self) -> &'static str {
        "avg_pool2d"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let pool = pool(self.kind(), (graph, x), self.kernel, self.stride, self.padding)?;
        graph.apply(op::AvgPool2d { pool, count_include_pad: self.count_include_pad }, &[x])
    }
}

impl Layer for AdaptiveAvgPool2d {
    fn kind(&self) -> &'static str {
        "adaptive_avg_pool2d"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let [_, height, width] = image(self.kind(), graph, x)?;
        let size = self.size;
        if size == [1, 1] {
            return op::reduce::mean(graph, x, &[2, 3], true);
        }
        if size.contains(&0) {
            return Err(Error::shape(self.kind(), format!("expected a size of at least 1, got {}", pair_text(size))));
        }
        if height % size[0] == 0 && width % size[1] == 0 {
            let pool = Pool::new([height / size[0], width / size[1]]);
            return graph.apply(op::AvgPool2d { pool, count_include_pad: true }, &[x]);
        }
        graph.apply(op::AdaptiveAvgPool2d { size }, &[x])
    }
}
