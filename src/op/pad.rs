//! A constant around a tensor.

use super::Slice;
use super::broadcast::{MAX_RANK, expect_few};
use super::prelude::*;

/// x → x with `value` around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pad {
    /// How much in front of and behind each dimension.
    pub around: Vec<[usize; 2]>,
    /// What it is filled with.
    pub value: Scalar,
}

/// A dimension of x, and how much stands in front of and behind it.
type Padded = [usize; 3];

impl Pad {
    fn output(&self, x: &Shape) -> Result<Shape> {
        self.value.check(self.name(), "value")?;
        if self.around.len() != x.rank() || x.elements() == 0 {
            let message = format!(
                "expected the padding in front of and behind each dimension of a tensor that is not empty, got {:?} for {x}",
                self.around
            );
            return Err(Error::shape(self.name(), message));
        }
        Ok(x.dims()
            .iter()
            .zip(&self.around)
            .map(|(dim, around)| dim + around[0] + around[1])
            .collect::<Vec<_>>()
            .into())
    }

    /// The dimensions, outermost first, exactly [`MAX_RANK`]; one whose inner neighbour is not padded is merged with
    /// it.
    fn merged(&self, x: &Shape) -> Result<Vec<Padded>> {
        let mut merged: Vec<Padded> = Vec::new(); // innermost first
        for (&dim, &[before, after]) in x.dims().iter().zip(&self.around).rev() {
            match merged.last_mut() {
                Some(last @ [_, 0, 0]) => *last = [dim * last[0], before * last[0], after * last[0]],
                _ => merged.push([dim, before, after]),
            }
        }
        expect_few(self.name(), format_args!("{:?} of {x}", self.around), merged.len())?;
        merged.reverse();
        merged.resize(MAX_RANK, [1, 0, 0]);
        Ok(merged)
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        self.merged(&x)?;
        Ok(vec![TensorType::f32(self.output(&x)?)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let merged = self.merged(&inputs[0].shape)?;
        let [outermost, before, _] = merged[0];
        let kernel = Kernel::linear(shader!("pad"), 64).constant("VALUE", self.value);
        let mut kernel = kernel.size("x0", outermost).constant("P0", before);
        let names = [["D1", "X1", "P1"], ["D2", "X2", "P2"], ["D3", "X3", "P3"]];
        for ([d, x, p], [dim, before, after]) in names.into_iter().zip(&merged[1..]) {
            kernel = kernel.constant(d, dim + before + after).constant(x, *dim).constant(p, *before);
        }
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (dy, x) = (node.dy()?, emit.shape_of(node.inputs[0]));
        let ranges = x.dims().iter().zip(&self.around).map(|(dim, around)| around[0]..around[0] + dim).collect();
        Ok(vec![node.when(0, || emit.emit(Slice { ranges }, &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let side = |side: usize| self.around.iter().map(move |around| around[side]);
        let (around, value) = (model.list(&side(0).chain(side(1)).collect::<Vec<_>>()), model.number(self.value.get()));
        Ok(vec![model.node("Pad", &[node.input(0), &around, &value], &[])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let shape = self.output(&x.shape).expect("checked by infer");
        let (to, from) = (shape.strides(), x.shape.strides());
        vec![Reference::from_fn(shape.clone(), |i| {
            let at = (0..shape.rank()).map(|axis| {
                let coordinate = (i / to[axis] % shape[axis]).checked_sub(self.around[axis][0])?;
                (coordinate < x.shape[axis]).then_some(coordinate * from[axis])
            });
            at.sum::<Option<usize>>().map_or(self.value.f64(), |at| x.data[at])
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |shape: &[usize], around: &[[usize; 2]], value: f32| {
        Example::new(Pad { around: around.to_vec(), value: value.into() }, [shape])
    };
    vec![
        case(&[1], &[[0, 0]], 0.0),
        case(&[65], &[[3, 62]], -1.5),
        case(&[7, 13], &[[0, 2], [1, 0]], 0.5),
        case(&[2, 3, 5, 7], &[[1, 0], [0, 2], [3, 1], [0, 1]], 0.25),
        case(&[2, 3, 5, 7, 3], &[[0, 0], [1, 2], [0, 0], [0, 0], [2, 1]], 0.0), // merges
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_done_by_hand() {
        let x = Reference::from_fn([1, 2], |i| i as f64 + 1.0);
        let pad = Pad { around: vec![[1, 0], [0, 1]], value: 9.0.into() };
        assert_eq!(pad.reference(&[&x], &Step::default())[0].data, [9.0, 9.0, 9.0, 1.0, 2.0, 9.0]);
    }

    #[test]
    fn the_padding_of_every_dimension_is_asked_for() {
        let pad = Pad { around: vec![[1, 1]], value: 0.0.into() };
        let error = pad.infer(&[&TensorType::f32([2, 3])]).unwrap_err().to_string();
        assert!(error.ends_with("got [[1, 1]] for [2, 3]"), "{error}");
    }
}
