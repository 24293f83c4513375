//! Images at another resolution.

use super::Upsample2dGrad;
use super::prelude::*;
use super::window::{extents, resized_planes};

/// How pixels between those of x come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Pixel o of O is pixel ⌊o·H/O⌋ of H.
    Nearest,
    /// Pixel o of O lies at (o + ½)·H/O − ½, at least 0, and is mixed from its neighbours there
    /// (`align_corners = False`).
    Bilinear,
}

/// x (N, C, H, W) → x at height and width `size` (N, C, OH, OW), as PyTorch's `interpolate`. Positions are computed in
/// whole numbers, so without rounding. Smaller sizes work too, without smoothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Upsample2d {
    /// Height and width of the output.
    pub size: [usize; 2],
    /// How pixels in between come about.
    pub interpolation: Interpolation,
}

/// Largest extent: twice a product of two stays within i32.
const MAX_EXTENT: usize = 16_384;
/// Most output pixels that an input pixel takes part in: one invocation of the gradient sums them.
const MAX_PIXELS: usize = 16_384;

impl Upsample2d {
    pub(super) fn output(&self, op: &str, x: &Shape) -> Result<Shape> {
        let y = resized_planes(op, x, self.size, MAX_EXTENT)?;
        let ([h, w], [oh, ow]) = ([x[2], x[3]], self.size);
        let pixels = (2 * oh / h + 3) * (2 * ow / w + 3);
        if pixels > MAX_PIXELS {
            let message = format!("expected a scale of about 60 at most, got {x} to {oh}×{ow}");
            return Err(Error::shape(op, message));
        }
        Ok(y)
    }

    /// The two pixels, of `extent`, that pixel `o` of `size` is mixed from, and the part of the second one.
    fn sources(&self, o: usize, size: usize, extent: usize) -> ([usize; 2], f64) {
        if self.interpolation == Interpolation::Nearest {
            return ([o * extent / size; 2], 0.0);
        }
        let position = ((2 * o + 1) * extent).saturating_sub(size); // in units of 1/(2 size)
        let first = position / (2 * size);
        let part = (position % (2 * size)) as f64 / (2 * size) as f64;
        ([first, (first + 1).min(extent - 1)], part)
    }

    /// Calls `term(y, x, factor)` with the positions of every product: y\[y\] += factor x\[x\].
    pub(super) fn products(&self, x: &Shape, mut term: impl FnMut(usize, usize, f64)) {
        let (planes, [h, w], [oh, ow]) = (x[0] * x[1], [x[2], x[3]], self.size);
        for i in 0..planes * oh * ow {
            let (plane, row, column) = (i / (oh * ow), i / ow % oh, i % ow);
            let ((rows, down), (columns, right)) = (self.sources(row, oh, h), self.sources(column, ow, w));
            for (y, fy) in rows.into_iter().zip([1.0 - down, down]) {
                for (x, fx) in columns.into_iter().zip([1.0 - right, right]) {
                    term(i, (plane * h + y) * w + x, fy * fx);
                }
            }
        }
    }

    /// Defines `BILINEAR` and adds `H`, `W` (input), `OH` and `OW`.
    pub(super) fn constants(&self, kernel: Kernel, x: &Shape) -> Kernel {
        let bilinear = self.interpolation == Interpolation::Bilinear;
        extents(kernel.define_if(bilinear, "BILINEAR"), [x[2], x[3]], self.size)
    }

    /// Attributes and input shapes for tests.
    pub(super) fn cases() -> Vec<(Self, [usize; 4])> {
        let cases = [
            ([1, 1], [1, 1, 1, 1]),
            ([10, 14], [2, 3, 5, 7]),
            ([13, 7], [1, 2, 5, 3]),
            ([65, 3], [2, 1, 13, 1]),
            ([4, 5], [1, 3, 11, 8]), // smaller
            ([9, 63], [3, 1, 1, 63]),
        ];
        let both = |(size, x)| {
            [Interpolation::Nearest, Interpolation::Bilinear].map(|interpolation| (Self { size, interpolation }, x))
        };
        cases.into_iter().flat_map(both).collect()
    }
}

impl Op for Upsample2d {
    fn name(&self) -> &'static str {
        "upsample2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        Ok(vec![TensorType::f32(self.output(self.name(), &x)?)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = self.constants(Kernel::linear(shader!("upsample2d"), 64), &inputs[0].shape);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let input = emit.shape_of(node.inputs[0]);
        Ok(vec![node.when(0, || emit.emit(Upsample2dGrad { upsample: *self, input }, &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let x = node.input(0);
        if self.interpolation == Interpolation::Bilinear {
            let (absent, size) = (Value::absent(), model.list(&self.size));
            let attributes = [
                ("axes", [2, 3].into()),
                ("mode", Attribute::Text("linear")),
                ("coordinate_transformation_mode", Attribute::Text("half_pixel")),
            ];
            return Ok(vec![model.node("Resize", &[x, &absent, &absent, &size], &attributes)]);
        }
        // Resize would compute positions as floats, and round some of them to another pixel.
        let mut y = x.clone();
        for axis in [0, 1] {
            let extent = node.extent(0, 2 + axis)?;
            let pixels: Vec<usize> =
                (0..self.size[axis]).map(|o| self.sources(o, self.size[axis], extent).0[0]).collect();
            let pixels = model.list(&pixels);
            y = model.node("Gather", &[&y, &pixels], &[("axis", (2 + axis).into())]);
        }
        Ok(vec![y])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let mut y = Reference::zeros(self.output(self.name(), &x.shape).expect("checked by infer"));
        self.products(&x.shape, |to, from, factor| y.data[to] += factor * x.data[from]);
        vec![y]
    }
}

pub(super) fn examples() -> Vec<Example> {
    Upsample2d::cases().into_iter().map(|(op, x)| Example::new(op, [&x])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_pytorchs() {
        let x = Reference::from_fn([1, 1, 1, 2], |i| 4.0 * i as f64);
        let row = |width, interpolation| {
            let op = Upsample2d { size: [1, width], interpolation };
            op.reference(&[&x], &Step::default()).remove(0).data
        };
        assert_eq!(row(4, Interpolation::Bilinear), [0.0, 1.0, 3.0, 4.0]);
        assert_eq!(row(3, Interpolation::Nearest), [0.0, 0.0, 4.0]);
        assert_eq!(row(1, Interpolation::Bilinear), [2.0]);
    }

    #[test]
    fn sizes_that_cannot_work_are_named() {
        let op = Upsample2d { size: [300, 300], interpolation: Interpolation::Nearest };
        let error = op.infer(&[&TensorType::f32([1, 1, 2, 2])]).unwrap_err().to_string();
        assert_eq!(error, "upsample2d: expected a scale of about 60 at most, got [1, 1, 2, 2] to 300×300");
    }
}
