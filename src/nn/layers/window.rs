//! What convolutions and pools share: padding, and messages about windows that do not fit.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::ValueId;
use crate::tensor::Shape;

/// What surrounds an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Rows and columns at the top, bottom, left and right.
    Sides([usize; 4]),
    /// As much as makes the output ⌈input / stride⌉, half on each side; an odd one goes to the bottom or right.
    Same,
}

impl Default for Padding {
    fn default() -> Self {
        Self::Sides([0; 4])
    }
}

impl From<usize> for Padding {
    fn from(all: usize) -> Self {
        Self::Sides([all; 4])
    }
}

impl From<[usize; 2]> for Padding {
    /// (vertical, horizontal)
    fn from([vertical, horizontal]: [usize; 2]) -> Self {
        Self::Sides([vertical, vertical, horizontal, horizontal])
    }
}

/// A window's attributes; pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: Padding,
    pub dilation: [usize; 2],
}

impl Window {
    /// Top, bottom, left and right padding for an image of this height and width, checked: the kernel fits.
    pub(super) fn padding(&self, kind: &str, image: [usize; 2]) -> Result<[usize; 4]> {
        for (name, pair) in [("kernel", self.kernel), ("stride", self.stride), ("dilation", self.dilation)] {
            if pair.contains(&0) {
                return Err(Error::shape(kind, format!("expected {name} of at least 1, got {}", pair_text(pair))));
            }
        }
        let span = [0, 1].map(|axis| self.dilation[axis].saturating_mul(self.kernel[axis] - 1).saturating_add(1));
        let padding = match self.padding {
            Padding::Sides(sides) => sides,
            Padding::Same => {
                let [vertical, horizontal] = [0, 1].map(|axis| {
                    let windows = image[axis].div_ceil(self.stride[axis]);
                    let reach = (windows - 1).saturating_mul(self.stride[axis]).saturating_add(span[axis]);
                    let total = reach.saturating_sub(image[axis]);
                    [total / 2, total - total / 2]
                });
                [vertical[0], vertical[1], horizontal[0], horizontal[1]]
            }
        };
        let padded =
            [0, 1].map(|axis| image[axis].saturating_add(padding[2 * axis]).saturating_add(padding[2 * axis + 1]));
        if span[0] > padded[0] || span[1] > padded[1] {
            let dilated = if self.dilation == [1, 1] {
                String::new()
            } else {
                format!(" with dilation {} (spans {})", pair_text(self.dilation), pair_text(span))
            };
            let message = format!(
                "kernel {}{dilated} does not fit the padded input {}: got height×width {} with padding {padding:?}, \
                 expected at least {}",
                pair_text(self.kernel),
                pair_text(padded),
                pair_text(image),
                pair_text(span),
            );
            return Err(Error::shape(kind, message));
        }
        Ok(padding)
    }
}

/// `3×5`
pub(super) fn pair_text([vertical, horizontal]: [usize; 2]) -> String {
    format!("{vertical}×{horizontal}")
}

/// Channels, height and width of `x` (N, C, H, W).
pub(super) fn image(kind: &str, graph: &Graph, x: ValueId) -> Result<[usize; 3]> {
    match *graph.shape(x).dims() {
        [_, c, h, w] if c > 0 && h > 0 && w > 0 => Ok([c, h, w]),
        ref other => {
            let sample = Shape::from(other.get(1..).unwrap_or_default());
            let message = format!(
                "expected samples of shape [channels, height, width], got {sample}; a reshape layer in front can make \
                 them so"
            );
            Err(Error::shape(kind, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { kernel: [5, 5], stride: [1, 1], padding: Padding::Sides([0; 4]), dilation: [1, 1] };

    #[test]
    fn same_padding_keeps_the_extent_or_divides_it_by_the_stride() {
        let same = |kernel, stride, image| {
            Window { kernel, stride, padding: Padding::Same, ..WINDOW }.padding("conv2d", image).unwrap()
        };
        assert_eq!(same([5, 3], [1, 1], [8, 8]), [2, 2, 1, 1]);
        assert_eq!(same([2, 2], [1, 1], [8, 8]), [0, 1, 0, 1]);
        // ⌈7/2⌉ = 4 windows of 3 reach 9 rows.
        assert_eq!(same([3, 3], [2, 2], [7, 8]), [1, 1, 0, 1]);
        assert_eq!(same([1, 1], [3, 3], [7, 8]), [0; 4]);
    }

    #[test]
    fn windows_that_do_not_fit_say_what_was_given() {
        let error = |window: Window, image| window.padding("conv2d", image).unwrap_err().to_string();
        assert_eq!(
            error(Window { padding: Padding::from(1), ..WINDOW }, [2, 9]),
            "conv2d: kernel 5×5 does not fit the padded input 4×11: got height×width 2×9 with padding [1, 1, 1, 1], \
             expected at least 5×5"
        );
        assert_eq!(
            error(Window { dilation: [2, 1], ..WINDOW }, [8, 8]),
            "conv2d: kernel 5×5 with dilation 2×1 (spans 9×5) does not fit the padded input 8×8: got height×width 8×8 \
             with padding [0, 0, 0, 0], expected at least 9×5"
        );
        assert_eq!(
            error(Window { stride: [0, 1], ..WINDOW }, [8, 8]),
            "conv2d: expected stride of at least 1, got 0×1"
        );
    }
}
