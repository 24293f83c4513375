//! Permutes the dimensions of a tensor.

use super::broadcast::Walk;
use super::prelude::*;

/// x → x with dimension i of the output being dimension `axes[i]` of x, as NumPy's `transpose`.
#[derive(Debug, Clone)]
pub struct Transpose {
    /// A permutation of x's dimensions.
    pub axes: Vec<usize>,
}

impl Transpose {
    fn output(&self, x: &Shape) -> Result<Shape> {
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if sorted.iter().copied().ne(0..x.rank()) {
            let message = format!("expected a permutation of the {} dimensions of {x}, got {:?}", x.rank(), self.axes);
            return Err(Error::shape(self.name(), message));
        }
        Ok(self.axes.iter().map(|&axis| x[axis]).collect::<Vec<_>>().into())
    }

    /// The walk of x along the output; dimensions that stay neighbours are merged.
    fn walk(&self, x: &Shape) -> Result<Walk<1>> {
        let strides = x.strides();
        let along: Vec<_> = self.axes.iter().map(|&axis| x[axis]).collect();
        let strides = self.axes.iter().map(|&axis| strides[axis]).collect();
        Walk::merged(self.name(), format_args!("{x} by {:?}", self.axes), &along, [strides])
    }
}

impl Op for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        let shape = self.output(&x)?;
        self.walk(&x)?;
        Ok(vec![TensorType::f32(shape)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let walk = self.walk(&inputs[0].shape)?;
        let kernel = Kernel::linear(shader!("transpose"), 64);
        let kernel = walk.constants(kernel, ["D1", "D2", "D3"], [["A0", "A1", "A2", "A3"]]);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let mut axes = vec![0; self.axes.len()];
        self.axes.iter().enumerate().for_each(|(to, &from)| axes[from] = to);
        Ok(vec![node.when(0, || emit.emit(Transpose { axes }, &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![model.node("Transpose", &[node.input(0)], &[("perm", self.axes[..].into())])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let (from, shape) = (x.shape.strides(), self.output(&x.shape).expect("checked by infer"));
        let to = shape.strides();
        vec![Reference::from_fn(shape.clone(), |i| {
            let at = (0..shape.rank()).map(|axis| i / to[axis] % shape[axis] * from[self.axes[axis]]);
            x.data[at.sum::<usize>()]
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |axes: &[usize], shape: &[usize]| Example::new(Transpose { axes: axes.to_vec() }, [shape]);
    vec![
        case(&[0], &[1]),
        case(&[1, 0], &[300, 70]),
        case(&[1, 0], &[63, 65]),
        case(&[0, 2, 1, 3], &[2, 7, 3, 5]), // attention heads
        case(&[3, 1, 0, 2], &[2, 3, 5, 7]),
        case(&[2, 3, 4, 0, 1], &[2, 3, 1, 5, 7]), // merges to rank 2
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_must_be_a_permutation() {
        let error = Transpose { axes: vec![0, 0] }.infer(&[&TensorType::f32([2, 3])]).unwrap_err();
        assert_eq!(error.to_string(), "transpose: expected a permutation of the 2 dimensions of [2, 3], got [0, 0]");
    }
}
