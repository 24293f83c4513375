//! Elements picked along an axis.

use super::GatherGrad;
use super::axis::resized;
use super::broadcast::{Walk, broadcast, broadcast_strides};
use super::prelude::*;

/// (x, index u32) → y with y\[.., j, ..\] = x\[.., index\[.., j, ..\], ..\] along `axis`: NumPy's `take_along_axis`.
/// Outside of the axis, index has x's dimensions or 1, where it is the same for all (so \[1, J, 1\] picks J slices of
/// axis 1). An index beyond the axis counts as its last position.
#[derive(Debug, Clone, Copy)]
pub struct Gather {
    /// The axis.
    pub axis: usize,
}

/// Checks (x, index) and returns the shape of y.
pub(super) fn picked(op: &str, axis: usize, x: &Shape, index: &Shape) -> Result<Shape> {
    let fits = |(d, (&dim, &picks)): (usize, (&usize, &usize))| d == axis || picks == dim || picks == 1;
    let dims = x.dims().iter().zip(index.dims()).enumerate();
    if axis >= x.rank() || x[axis] == 0 || x.rank() != index.rank() || !dims.into_iter().all(fits) {
        let message = format!(
            "expected an axis of x that is not empty and an index with x's other dimensions or 1, got axis {axis} of {x} \
             and index {index}"
        );
        return Err(Error::shape(op, message));
    }
    Ok(resized(x, axis, index[axis]))
}

/// Strides of `shape` along a shape of its rank that differs from it at `axis`, along which it is not moved.
pub(super) fn strides_beside(shape: &Shape, axis: usize) -> Vec<usize> {
    let mut strides = broadcast_strides(shape, shape.rank());
    strides[axis] = 0;
    strides
}

/// Input 1 of `node`, an index of input 0 along `axis`, in an ONNX model: at most the last position.
pub(super) fn within(model: &mut Builder, node: &onnx::Node, axis: usize) -> Result<Value> {
    let last = model.list(&[node.extent(0, axis)? - 1]);
    Ok(model.binary("Min", node.input(1), &last))
}

impl Gather {
    /// The walk of index and x (at position 0 of the axis) along y.
    fn walk(&self, x: &Shape, index: &Shape) -> Result<(Shape, Walk<2>)> {
        let y = picked(self.name(), self.axis, x, index)?;
        broadcast(self.name(), &y, index)?;
        let strides = [broadcast_strides(index, y.rank()), strides_beside(x, self.axis)];
        let walk = Walk::merged(self.name(), &y, y.dims(), strides)?;
        Ok((y, walk))
    }
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, index] = expect_types(self.name(), inputs, [DType::F32, DType::U32])?;
        Ok(vec![TensorType::f32(self.walk(&x.shape, &index.shape)?.0)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let x = &inputs[0].shape;
        let (_, walk) = self.walk(x, &inputs[1].shape)?;
        let strides = [["I0", "I1", "I2", "I3"], ["X0", "X1", "X2", "X3"]];
        let kernel = walk.constants(Kernel::linear(shader!("gather"), 64), ["D1", "D2", "D3"], strides);
        let kernel = kernel.constant("EXTENT", x[self.axis]).constant("STRIDE", x.strides()[self.axis]);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (dy, input) = (node.dy()?, emit.shape_of(node.inputs[0]));
        let op = GatherGrad { axis: self.axis, input };
        Ok(vec![node.when(0, || emit.emit(op, &[node.inputs[1], dy]))?, None])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let mut index = within(model, node, self.axis)?;
        if node.inputs[1].dims != node.outputs[0] {
            let shape = model.shape(&node.outputs[0])?;
            index = model.binary("Expand", &index, &shape);
        }
        Ok(vec![model.node("GatherElements", &[node.input(0), &index], &[("axis", self.axis.into())])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, index) = (inputs[0], inputs[1]);
        let (shape, walk) = self.walk(&x.shape, &index.shape).expect("checked by infer");
        let (extent, stride) = (x.shape[self.axis], x.shape.strides()[self.axis]);
        let pick = |[i, base]: [usize; 2]| x.data[base + (index.data[i] as usize).min(extent - 1) * stride];
        vec![Reference { shape, data: walk.positions().map(pick).collect() }]
    }
}

/// Axis, shape of x and shape of index for tests; indices are drawn from one more than x has.
pub(super) fn cases() -> Vec<(usize, Vec<usize>, Vec<usize>)> {
    vec![
        (0, vec![1], vec![1]),
        (1, vec![65, 7], vec![65, 1]),
        (0, vec![11, 63], vec![31, 1]), // rows of a table
        (1, vec![3, 13, 5], vec![3, 29, 5]),
        (2, vec![2, 3, 5, 7], vec![2, 1, 9, 1]),
    ]
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(axis, x, index): (usize, Vec<usize>, Vec<usize>)| {
        Example::new(Gather { axis }, [&x]).labels(&index, x[axis] as u32 + 1)
    };
    cases().into_iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_along_the_axis() {
        let x = Reference::from_fn([2, 3], |i| i as f64);
        let gather = |axis, shape: [usize; 2], index: &[f64]| {
            let index = Reference { shape: shape.into(), data: index.to_vec() };
            Gather { axis }.reference(&[&x, &index], &Step::default()).remove(0).data
        };
        assert_eq!(gather(1, [2, 2], &[2.0, 0.0, 1.0, 9.0]), [2.0, 0.0, 4.0, 5.0]);
        assert_eq!(gather(0, [1, 3], &[1.0, 0.0, 1.0]), [3.0, 1.0, 5.0]);
        assert_eq!(gather(1, [1, 2], &[2.0, 2.0]), [2.0, 2.0, 5.0, 5.0]);
    }

    #[test]
    fn shapes_are_checked() {
        let error = Gather { axis: 0 }.infer(&[&TensorType::f32([2, 3]), &TensorType::u32([4, 2])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gather: expected an axis of x that is not empty and an index with x's other dimensions or 1, got axis 0 of \
             [2, 3] and index [4, 2]"
        );
    }
}
