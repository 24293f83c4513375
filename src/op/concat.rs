//! Tensors one after the other along an axis.

use super::Slice;
use super::axis::{Axis, resized};
use super::prelude::*;

/// (x₁, …, xₙ) → all of them along `axis`; their other dimensions are equal. One launch an input: any number works.
#[derive(Debug, Clone, Copy)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Concat {
    fn output(&self, inputs: &[&Shape]) -> Result<Shape> {
        let Some(first) = inputs.first() else {
            return Err(Error::shape(self.name(), "expected at least 1 input, got 0"));
        };
        let mut total = 0;
        for (i, x) in inputs.iter().enumerate() {
            total += Axis::of(self.name(), x, self.axis)?.extent;
            let expected = (x.rank() == first.rank()).then(|| resized(first, self.axis, x[self.axis]));
            if expected.as_ref() != Some(*x) {
                let message = format!("expected input {i} to be as {first} beside axis {}, got {x}", self.axis);
                return Err(Error::shape(self.name(), message));
            }
        }
        Ok(resized(first, self.axis, total))
    }

    /// Where each input starts along the axis.
    fn starts<'a>(&self, inputs: impl IntoIterator<Item = &'a Shape>) -> Vec<usize> {
        let extents = inputs.into_iter().map(|x| x[self.axis]);
        extents.scan(0, |next, extent| Some(std::mem::replace(next, *next + extent))).collect()
    }
}

impl Op for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        for (i, x) in inputs.iter().enumerate() {
            expect_dtype(self.name(), i, x, DType::F32)?;
        }
        Ok(vec![TensorType::f32(self.output(&inputs.iter().map(|x| &x.shape).collect::<Vec<_>>())?)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let total = Axis::of(self.name(), &outputs[0].shape, self.axis)?;
        let starts = self.starts(inputs.iter().map(|x| &x.shape));
        let launch = |(i, start): (usize, usize)| {
            let part = inputs[i].shape[self.axis];
            let kernel = total.constants(Kernel::linear(shader!("concat"), 64));
            let kernel = kernel.constant("START", start).constant("PART", part);
            elementwise(kernel, inputs[i].shape.elements(), vec![input(i), output(0)])
        };
        let parts = starts.into_iter().enumerate().filter(|(i, _)| inputs[*i].shape.elements() > 0);
        Ok(Lowering { scratch: vec![], launches: parts.map(launch).collect() })
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let shapes: Vec<Shape> = node.inputs.iter().map(|&x| emit.shape_of(x)).collect();
        let starts = self.starts(&shapes);
        let part = |(i, start): (usize, usize)| {
            let mut ranges: Vec<_> = shapes[i].dims().iter().map(|&dim| 0..dim).collect();
            ranges[self.axis] = start..start + shapes[i][self.axis];
            node.when(i, || emit.emit(Slice { ranges }, &[dy]))
        };
        starts.into_iter().enumerate().map(part).collect()
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![model.node("Concat", &node.values(), &[("axis", self.axis.into())])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let shape = self.output(&inputs.iter().map(|x| &x.shape).collect::<Vec<_>>()).expect("checked by infer");
        let outer: usize = shape.dims()[..self.axis].iter().product();
        let rows = (0..outer).flat_map(|row| {
            inputs.iter().flat_map(move |x| {
                let width = x.data.len() / outer;
                &x.data[row * width..][..width]
            })
        });
        let data = rows.copied().collect();
        vec![Reference { shape, data }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let three = |axis, shapes: [&[usize]; 3]| Example::new(Concat { axis }, shapes);
    let shapes = [[1, 3], [1, 65], [1, 1], [1, 7], [1, 2], [1, 5], [1, 1], [1, 13], [1, 4]];
    vec![
        Example::new(Concat { axis: 0 }, [&[1]]),
        Example::new(Concat { axis: 1 }, [&[63, 5], &[63, 13]]),
        three(0, [&[3, 65], &[1, 65], &[7, 65]]),
        three(1, [&[5, 2, 7, 3], &[5, 1, 7, 3], &[5, 11, 7, 3]]),
        // More inputs than a kernel may bind.
        Example::new(Concat { axis: 1 }, shapes.each_ref().map(|shape| &shape[..])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_differ_elsewhere_are_named() {
        let types = [[2, 3], [2, 5], [1, 3]].map(TensorType::f32);
        let error = Concat { axis: 1 }.infer(&types.iter().collect::<Vec<_>>()).unwrap_err();
        assert_eq!(error.to_string(), "concat: expected input 2 to be as [2, 3] beside axis 1, got [1, 3]");
    }
}
