//! A box cut out of a tensor.

use std::ops::Range;

use super::Pad;
use super::broadcast::Walk;
use super::prelude::*;

/// x → the part of x in these ranges of positions, one for each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The ranges, none of them empty.
    pub ranges: Vec<Range<usize>>,
}

impl Slice {
    /// The part in `range` of dimension `axis` of a tensor of this shape. The ranges are checked where it is applied.
    pub fn along(shape: &Shape, axis: usize, range: Range<usize>) -> Self {
        let whole = shape.dims().iter().enumerate();
        Self { ranges: whole.map(|(i, &dim)| if i == axis { range.clone() } else { 0..dim }).collect() }
    }

    fn output(&self, x: &Shape) -> Result<Shape> {
        let fits = |(range, &dim): (&Range<usize>, &usize)| !range.is_empty() && range.end <= dim;
        if self.ranges.len() != x.rank() || !self.ranges.iter().zip(x.dims()).all(fits) {
            let message = format!("expected a range inside each dimension of {x}, got {:?}", self.ranges);
            return Err(Error::shape(self.name(), message));
        }
        Ok(self.ranges.iter().map(ExactSizeIterator::len).collect::<Vec<_>>().into())
    }

    /// Where the box starts in x, and the walk of x along it.
    fn walk(&self, x: &Shape) -> Result<(usize, Walk<1>)> {
        let (y, strides) = (self.output(x)?, x.strides());
        let start = self.ranges.iter().zip(&strides).map(|(range, stride)| range.start * stride).sum();
        let walk = Walk::merged(self.name(), format_args!("{:?} of {x}", self.ranges), y.dims(), [strides])?;
        Ok((start, walk))
    }
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        self.walk(&x)?;
        Ok(vec![TensorType::f32(self.output(&x)?)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (start, walk) = self.walk(&inputs[0].shape)?;
        let kernel = Kernel::linear(shader!("slice"), 64).constant("START", start);
        let kernel = walk.constants(kernel, ["D1", "D2", "D3"], [["A0", "A1", "A2", "A3"]]);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (dy, x) = (node.dy()?, emit.shape_of(node.inputs[0]));
        let around = self.ranges.iter().zip(x.dims()).map(|(range, dim)| [range.start, dim - range.end]);
        let pad = Pad { around: around.collect(), value: 0.0.into() };
        Ok(vec![node.when(0, || emit.emit(pad, &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let (x, y) = (&node.inputs[0].dims, &node.outputs[0]);
        let whole = |axis: usize| self.ranges[axis].start == 0 && x[axis] == y[axis];
        let axes: Vec<usize> = (0..x.len()).filter(|&axis| !whole(axis)).collect();
        if axes.is_empty() {
            return Ok(vec![node.input(0).clone()]);
        }
        let starts = model.list(&axes.iter().map(|&axis| self.ranges[axis].start).collect::<Vec<_>>());
        let ends = model.list(&axes.iter().map(|&axis| self.ranges[axis].end).collect::<Vec<_>>());
        let axes = model.list(&axes);
        Ok(vec![model.node("Slice", &[node.input(0), &starts, &ends, &axes], &[])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let (y, from) = (self.output(&x.shape).expect("checked by infer"), x.shape.strides());
        let to = y.strides();
        vec![Reference::from_fn(y.clone(), |i| {
            let at = (0..y.rank()).map(|axis| (i / to[axis] % y[axis] + self.ranges[axis].start) * from[axis]);
            x.data[at.sum::<usize>()]
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |shape: &[usize], ranges: &[Range<usize>]| Example::new(Slice { ranges: ranges.to_vec() }, [shape]);
    let along = |shape: [usize; 1], range| Example::new(Slice::along(&shape.into(), 0, range), [&shape]);
    vec![
        along([1], 0..1),
        along([131], 66..131),
        case(&[65, 7], &[3..64, 0..7]),
        case(&[65, 7], &[0..65, 6..7]),
        case(&[5, 7, 11, 13], &[1..5, 0..3, 2..9, 12..13]),
        case(&[3, 2, 5, 2, 7], &[1..3, 0..2, 0..5, 0..2, 3..5]), // merges
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_must_lie_inside() {
        let error = |ranges: &[Range<usize>]| {
            Slice { ranges: ranges.to_vec() }.infer(&[&TensorType::f32([2, 3])]).unwrap_err().to_string()
        };
        assert_eq!(error(&[0..2, 1..4]), "slice: expected a range inside each dimension of [2, 3], got [0..2, 1..4]");
        assert!(error(&[0..2, 1..2, 0..1]).ends_with("got [0..2, 1..2, 0..1]"));
        assert!(error(&[0..2, 1..1]).ends_with("got [0..2, 1..1]"));
    }
}
