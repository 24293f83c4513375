//! Windows that slide over the last two dimensions: the geometry that convolutions and pools share. It knows no op.

use super::prelude::*;

/// A sliding window; every pair is (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// Taps along each axis.
    pub kernel: [usize; 2],
    /// Distance between two windows.
    pub stride: [usize; 2],
    /// Rows and columns around the input: top, bottom, left, right.
    pub padding: [usize; 4],
    /// Distance between two taps.
    pub dilation: [usize; 2],
}

/// Bound on every extent, so that kernels may compute positions in i32.
const MAX_EXTENT: usize = 1 << 24;

impl Window {
    /// Height and width of the output: ⌊(input + padding − dilation (kernel − 1) − 1) / stride⌋ + 1.
    ///
    /// # Errors
    /// When an attribute is zero where it must not be, or the window is larger than the padded input.
    pub fn output(&self, op: &str, input: [usize; 2]) -> Result<[usize; 2]> {
        let mut output = [0; 2];
        for axis in 0..2 {
            let (kernel, stride, dilation) = (self.kernel[axis], self.stride[axis], self.dilation[axis]);
            for (name, value) in [("kernel", kernel), ("stride", stride), ("dilation", dilation)] {
                if !(1..=MAX_EXTENT).contains(&value) {
                    return Err(Error::shape(op, format!("expected {name} from 1 to {MAX_EXTENT}, got {value}")));
                }
            }
            let padding = &self.padding[2 * axis..2 * axis + 2];
            let along = ["height", "width"][axis];
            if padding.iter().chain([&input[axis]]).any(|&v| v > MAX_EXTENT) {
                let message = format!("{along} {} with padding {padding:?} exceeds {MAX_EXTENT}", input[axis]);
                return Err(Error::shape(op, message));
            }
            let padded = input[axis] + padding[0] + padding[1];
            let span = dilation * (kernel - 1) + 1;
            if input[axis] == 0 || span > padded {
                let message = format!(
                    "expected {along} of at least {span} (kernel {kernel}, dilation {dilation}), got {} with padding \
                     {padding:?}",
                    input[axis]
                );
                return Err(Error::shape(op, message));
            }
            output[axis] = (padded - span) / stride + 1;
        }
        Ok(output)
    }

    /// Whether a tap can fall on padding.
    pub fn is_padded(&self) -> bool {
        self.padding != [0; 4]
    }

    /// The input's coordinate along `axis` of tap `tap` of window `window`; `None` on padding.
    pub fn tap(&self, axis: usize, window: usize, tap: usize, extent: usize) -> Option<usize> {
        let at = window * self.stride[axis] + tap * self.dilation[axis];
        at.checked_sub(self.padding[2 * axis]).filter(|&at| at < extent)
    }

    /// The positions in an input of this shape (N, C, H, W) that each window covers, in the order of the output.
    pub fn positions(&self, shape: &Shape) -> impl Iterator<Item = Vec<usize>> {
        let (h, w, window) = (shape[2], shape[3], *self);
        let [oh, ow] = self.output("pool", [h, w]).expect("checked by infer");
        (0..shape[0] * shape[1] * oh * ow).map(move |i| {
            let (plane, row, column) = (i / (oh * ow), i / ow % oh, i % ow);
            let columns = |iy| (0..window.kernel[1]).filter_map(move |kx| Some((iy, window.tap(1, column, kx, w)?)));
            let pixels = (0..window.kernel[0]).filter_map(|ky| window.tap(0, row, ky, h)).flat_map(columns);
            pixels.map(|(iy, ix)| (plane * h + iy) * w + ix).collect()
        })
    }

    /// Adds `H`, `W` (input), `OH`, `OW` (output), `KH`, `KW`, `SH`, `SW`, `PT`, `PL`, `DH` and `DW`, and defines
    /// `PADDED`.
    pub fn constants(&self, kernel: Kernel, input: [usize; 2], output: [usize; 2]) -> Kernel {
        let names = [["KH", "KW"], ["SH", "SW"], ["PT", "PL"], ["DH", "DW"]];
        let values = [self.kernel, self.stride, [self.padding[0], self.padding[2]], self.dilation];
        let pairs = names.into_iter().flatten().zip(values.into_iter().flatten());
        let kernel = extents(kernel.define_if(self.is_padded(), "PADDED"), input, output);
        pairs.fold(kernel, |kernel, (name, value)| kernel.constant(name, value))
    }
}

/// The windows of a pool; every pair is (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Extents of a window.
    pub kernel: [usize; 2],
    /// Distance between two windows.
    pub stride: [usize; 2],
    /// Rows and columns around the input: top, bottom, left, right; less than the kernel.
    pub padding: [usize; 4],
}

impl Pool {
    /// Windows side by side, without padding.
    pub fn new(kernel: [usize; 2]) -> Self {
        Self { kernel, stride: kernel, padding: [0; 4] }
    }

    /// The window that slides.
    pub(super) fn window(&self) -> Window {
        Window { kernel: self.kernel, stride: self.stride, padding: self.padding, dilation: [1, 1] }
    }

    /// The output's shape for input `x`.
    ///
    /// # Errors
    /// As [`Window::output`], and when a window would lie wholly on padding.
    pub(super) fn output(&self, op: &str, x: &Shape) -> Result<Shape> {
        let [n, c, h, w] = planes(op, "input", x)?;
        let [oh, ow] = self.window().output(op, [h, w])?;
        if (0..4).any(|side| self.padding[side] >= self.kernel[side / 2]) {
            let message = format!("expected padding below the kernel {:?}, got {:?}", self.kernel, self.padding);
            return Err(Error::shape(op, message));
        }
        Ok([n, c, oh, ow].into())
    }

    /// Adds the window's constants, for windows over x that give y.
    pub(super) fn constants(&self, kernel: Kernel, x: &Shape, y: &Shape) -> Kernel {
        self.window().constants(kernel, [x[2], x[3]], [y[2], y[3]])
    }

    /// The attributes of an ONNX pool.
    pub(super) fn attributes(&self) -> Vec<(&'static str, Attribute)> {
        vec![("kernel_shape", self.kernel.into()), ("strides", self.stride.into()), ("pads", pads(self.padding))]
    }

    /// Attributes and input shapes for tests.
    pub(super) fn cases() -> Vec<(Self, [usize; 4])> {
        let plain = Self::new;
        vec![
            (plain([1, 1]), [1, 1, 1, 1]),
            (plain([2, 2]), [2, 3, 8, 6]),
            (plain([2, 2]), [1, 2, 7, 13]),
            (Self { stride: [2, 2], padding: [1; 4], ..plain([3, 3]) }, [2, 3, 9, 7]),
            (Self { stride: [1, 1], padding: [1; 4], ..plain([3, 3]) }, [1, 2, 5, 11]),
            (Self { stride: [3, 1], padding: [0, 1, 2, 1], ..plain([2, 5]) }, [2, 1, 8, 7]),
            (Self { stride: [3, 4], ..plain([2, 2]) }, [1, 1, 11, 65]),
            (plain([7, 7]), [3, 65, 7, 7]),
        ]
    }
}

/// The shape of `x` (N, C, H, W) with planes of another `size`, and both bounded by `most`.
///
/// # Errors
/// When an extent is beyond that, or x has another rank.
pub fn resized_planes(op: &str, x: &Shape, size: [usize; 2], most: usize) -> Result<Shape> {
    let ([n, c, h, w], [oh, ow]) = (planes(op, "input", x)?, size);
    if [h, w, oh, ow].iter().any(|extent| !(1..=most).contains(extent)) {
        let message = format!("expected extents from 1 to {most}, got size {oh}×{ow} for {x}");
        return Err(Error::shape(op, message));
    }
    Ok([n, c, oh, ow].into())
}

/// Adds `H`, `W` (input), `OH` and `OW` (output).
pub fn extents(kernel: Kernel, input: [usize; 2], output: [usize; 2]) -> Kernel {
    let kernel = kernel.constant("H", input[0]).constant("W", input[1]);
    kernel.constant("OH", output[0]).constant("OW", output[1])
}

/// Padding in ONNX's order: beginnings, then ends.
pub fn pads([top, bottom, left, right]: [usize; 4]) -> Attribute {
    [top, left, bottom, right].into()
}

/// Batch, channels, height and width of a rank-4 shape without empty dimensions.
///
/// # Errors
/// When `shape` is anything else.
pub fn planes(op: &str, what: &str, shape: &Shape) -> Result<[usize; 4]> {
    match *shape.dims() {
        [n, c, h, w] if shape.elements() > 0 => Ok([n, c, h, w]),
        _ => Err(Error::shape(op, format!("expected {what} of four non-empty dimensions, got {shape}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Window = Window { kernel: [3, 5], stride: [1, 1], padding: [0; 4], dilation: [1, 1] };

    #[test]
    fn output_extents_follow_the_formula() {
        assert_eq!(UNIT.output("op", [28, 28]).unwrap(), [26, 24]);
        let window = Window { stride: [2, 3], padding: [1, 2, 0, 4], dilation: [2, 1], ..UNIT };
        assert_eq!(window.output("op", [7, 11]).unwrap(), [3, 4]);
    }

    #[test]
    fn errors_name_what_was_given() {
        let message = UNIT.output("op", [3, 4]).unwrap_err().to_string();
        assert_eq!(message, "op: expected width of at least 5 (kernel 5, dilation 1), got 4 with padding [0, 0]");
        let message = Window { stride: [0, 1], ..UNIT }.output("op", [9, 9]).unwrap_err().to_string();
        assert_eq!(message, "op: expected stride from 1 to 16777216, got 0");
    }

    #[test]
    fn taps_on_padding_are_none() {
        let window = Window { padding: [1, 1, 0, 0], stride: [2, 1], ..UNIT };
        let taps = |window_row| [0, 1, 2].map(|tap| window.tap(0, window_row, tap, 4));
        assert_eq!(taps(0), [None, Some(0), Some(1)]);
        assert_eq!(taps(1), [Some(1), Some(2), Some(3)]);
        assert_eq!(taps(2), [Some(3), None, None]);
    }
}
