//! Mean over as many windows as the output is to have pixels.

use super::AdaptiveAvgPool2dGrad;
use super::prelude::*;
use super::window::{extents, resized_planes};

/// x (N, C, H, W) → the mean of each of OH × OW windows (N, C, OH, OW). Along each axis, window o of O covers the
/// pixels from ⌊o·H/O⌋ to ⌈(o + 1)·H/O⌉, as PyTorch's: windows differ by a pixel and may overlap. (The mean over whole
/// planes is [`super::reduce::mean`].)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of the output.
    pub size: [usize; 2],
}

/// Largest extent: products of two stay within u32.
const MAX_EXTENT: usize = 32_767;
/// Most pixels of a window: one invocation sums it. See [`super::sum_to`] about old lavapipe.
const MAX_PIXELS: usize = 16_384;

impl AdaptiveAvgPool2d {
    pub(super) fn output(&self, op: &str, x: &Shape) -> Result<Shape> {
        let y = resized_planes(op, x, self.size, MAX_EXTENT)?;
        let ([h, w], [oh, ow]) = ([x[2], x[3]], self.size);
        let pixels = (h / oh + 2) * (w / ow + 2);
        if pixels > MAX_PIXELS {
            let message =
                format!("expected windows of up to {MAX_PIXELS} pixels, got about {pixels} ({x} to {oh}×{ow})");
            return Err(Error::shape(op, message));
        }
        Ok(y)
    }

    /// The pixels that window `window` of `windows` covers along an axis.
    fn range(window: usize, windows: usize, extent: usize) -> std::ops::Range<usize> {
        window * extent / windows..((window + 1) * extent).div_ceil(windows)
    }

    /// For each output pixel, the positions that its window covers in x.
    pub(super) fn windows(&self, x: &Shape) -> impl Iterator<Item = Vec<usize>> {
        let (planes, [h, w], [oh, ow]) = (x[0] * x[1], [x[2], x[3]], self.size);
        (0..planes * oh * ow).map(move |i| {
            let (plane, row, column) = (i / (oh * ow), i / ow % oh, i % ow);
            let rows = Self::range(row, oh, h);
            rows.flat_map(|y| Self::range(column, ow, w).map(move |x| (plane * h + y) * w + x)).collect()
        })
    }

    /// Adds `H`, `W` (input), `OH` and `OW`.
    pub(super) fn constants(&self, kernel: Kernel, x: &Shape) -> Kernel {
        extents(kernel, [x[2], x[3]], self.size)
    }

    /// Attributes and input shapes for tests.
    pub(super) fn cases() -> Vec<(Self, [usize; 4])> {
        let case = |size, x| (Self { size }, x);
        vec![
            case([1, 1], [1, 1, 1, 1]),
            case([1, 1], [3, 5, 7, 7]),
            case([2, 3], [2, 3, 7, 11]),
            case([7, 7], [1, 2, 10, 13]),
            case([5, 4], [2, 1, 3, 65]), // higher than the input
            case([6, 63], [1, 3, 12, 63]),
        ]
    }
}

impl Op for AdaptiveAvgPool2d {
    fn name(&self) -> &'static str {
        "adaptive_avg_pool2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        Ok(vec![TensorType::f32(self.output(self.name(), &x)?)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = self.constants(Kernel::linear(shader!("adaptive_avg_pool2d"), 64), &inputs[0].shape);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let input = emit.shape_of(node.inputs[0]);
        Ok(vec![node.when(0, || emit.emit(AdaptiveAvgPool2dGrad { pool: *self, input }, &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        // The mean of a rectangle is that of its rows' means: a product with a matrix on either side.
        let ([oh, ow], h, w) = (self.size, node.extent(0, 2)?, node.extent(0, 3)?);
        let part = |window: usize, windows: usize, extent: usize, pixel: usize| {
            let range = Self::range(window, windows, extent);
            if range.contains(&pixel) { 1.0 / range.len() as f32 } else { 0.0 }
        };
        let down: Vec<f32> = (0..oh * h).map(|i| part(i / h, oh, h, i % h)).collect();
        let across: Vec<f32> = (0..w * ow).map(|i| part(i % ow, ow, w, i / ow)).collect();
        let (down, across) = (model.floats(&[oh, h], &down), model.floats(&[w, ow], &across));
        let rows = model.binary("MatMul", &down, node.input(0));
        Ok(vec![model.binary("MatMul", &rows, &across)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let mean = |window: Vec<usize>| window.iter().map(|&i| x.data[i]).sum::<f64>() / window.len() as f64;
        let data = self.windows(&x.shape).map(mean).collect();
        vec![Reference { shape: self.output(self.name(), &x.shape).expect("checked by infer"), data }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    AdaptiveAvgPool2d::cases().into_iter().map(|(op, x)| Example::new(op, [&x])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_pytorchs() {
        let x = Reference::from_fn([1, 1, 1, 5], |i| [1.0, 2.0, 4.0, 8.0, 16.0][i]);
        let y = AdaptiveAvgPool2d { size: [1, 3] }.reference(&[&x], &Step::default()).remove(0);
        // 0..2, 1..4, 3..5
        assert_eq!(y.data, [1.5, 14.0 / 3.0, 12.0]);
    }

    #[test]
    fn windows_that_are_too_large_are_refused() {
        let error = |size, shape: [usize; 4]| {
            AdaptiveAvgPool2d { size }.infer(&[&TensorType::f32(shape)]).unwrap_err().to_string()
        };
        let message = error([1, 1], [1, 1, 200, 100]);
        let expected = "expected windows of up to 16384 pixels, got about 20604 ([1, 1, 200, 100] to 1×1)";
        assert_eq!(message, format!("adaptive_avg_pool2d: {expected}"));
        assert!(error([0, 1], [1, 1, 2, 2]).ends_with("got size 0×1 for [1, 1, 2, 2]"));
    }
}
