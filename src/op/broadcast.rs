//! Broadcasting of two shapes (NumPy's rules) and the index arithmetic that kernels need for it.

use std::fmt::Display;

use super::prelude::*;

/// Dimensions that kernels index by; more are merged where the operands allow it.
pub const MAX_RANK: usize = 4;

/// The shape that `a` and `b` broadcast to.
///
/// # Errors
/// When a dimension differs and neither is 1.
pub fn broadcast(op: &str, a: &Shape, b: &Shape) -> Result<Shape> {
    let rank = a.rank().max(b.rank());
    let (left, right) = (padded(a, rank), padded(b, rank));
    let dims = left.iter().zip(&right).map(|(&l, &r)| match (l, r) {
        (l, r) if l == r => Ok(l),
        (1, r) => Ok(r),
        (l, 1) => Ok(l),
        _ => Err(Error::shape(op, format!("shapes {a} and {b} do not broadcast together"))),
    });
    Ok(dims.collect::<Result<Vec<_>>>()?.into())
}

/// `shape` with ones in front up to `rank`.
fn padded(shape: &Shape, rank: usize) -> Vec<usize> {
    let mut dims = vec![1; rank - shape.rank()];
    dims.extend_from_slice(shape.dims());
    dims
}

/// Strides of `shape` along a shape of `rank` dimensions that it broadcasts to: 0 where it is repeated.
pub fn broadcast_strides(shape: &Shape, rank: usize) -> Vec<usize> {
    let dims = padded(shape, rank);
    let strides = Shape::from(dims.clone()).strides();
    dims.iter().zip(strides).map(|(&dim, stride)| if dim == 1 { 0 } else { stride }).collect()
}

/// Checks that kernels can index by so many dimensions.
///
/// # Errors
/// When they are more than [`MAX_RANK`].
pub fn expect_few(op: &str, what: impl Display, dimensions: usize) -> Result<()> {
    if dimensions <= MAX_RANK {
        return Ok(());
    }
    Err(Error::shape(op, format!("{what} needs {dimensions} separate dimensions, at most {MAX_RANK} work")))
}

/// How operands are walked along a common shape: dimensions merged to [`MAX_RANK`] or fewer, and each operand's stride
/// along them (0 where it is broadcast).
#[derive(Debug, Clone, PartialEq)]
pub struct Walk<const N: usize> {
    /// Merged dimensions, outermost first, exactly [`MAX_RANK`]: the last ones are 1 where fewer do.
    pub dims: Vec<usize>,
    /// Strides of each operand.
    pub strides: [Vec<usize>; N],
}

impl<const N: usize> Walk<N> {
    /// The walk of `operands` along `shape`, to which each broadcasts.
    ///
    /// # Errors
    /// When more than [`MAX_RANK`] dimensions remain.
    pub fn new(op: &str, shape: &Shape, operands: [&Shape; N]) -> Result<Self> {
        let full = operands.map(|operand| broadcast_strides(operand, shape.rank()));
        Self::merged(op, shape, shape.dims(), full)
    }

    /// The walk along these dimensions with these strides of the operands along them; messages name `what` is walked.
    ///
    /// # Errors
    /// When more than [`MAX_RANK`] dimensions remain.
    pub fn merged(op: &str, what: impl Display, along: &[usize], full: [Vec<usize>; N]) -> Result<Self> {
        // Innermost first: a dimension joins the one inside it when every operand continues contiguously.
        let mut dims: Vec<usize> = Vec::new();
        let mut strides: [Vec<usize>; N] = std::array::from_fn(|_| Vec::new());
        for axis in (0..along.len()).rev().filter(|&axis| along[axis] != 1) {
            let joins = dims.last().is_some_and(|&inner| {
                (0..N).all(|n| full[n][axis] == strides[n].last().expect("one stride a dimension") * inner)
            });
            if joins {
                *dims.last_mut().expect("joins an existing dimension") *= along[axis];
            } else {
                dims.push(along[axis]);
                (0..N).for_each(|n| strides[n].push(full[n][axis]));
            }
        }
        expect_few(op, what, dims.len())?;
        dims.reverse();
        dims.resize(MAX_RANK, 1);
        for operand in &mut strides {
            operand.reverse();
            operand.resize(MAX_RANK, 0);
        }
        Ok(Self { dims, strides })
    }

    /// Adds the constants that `shaders/shared/broadcast.wgsl` reads: dimensions under `dims`, and strides under each of
    /// `names`. The outermost dimension, which may follow the number of rows, is not among them: no position needs it.
    pub fn constants(
        &self,
        mut kernel: Kernel,
        dims: [&'static str; MAX_RANK - 1],
        names: [[&'static str; MAX_RANK]; N],
    ) -> Kernel {
        for (name, &dim) in dims.into_iter().zip(&self.dims[1..]) {
            kernel = kernel.constant(name, dim);
        }
        for (names, strides) in names.into_iter().zip(&self.strides) {
            for (name, &stride) in names.into_iter().zip(strides) {
                kernel = kernel.constant(name, stride);
            }
        }
        kernel
    }

    /// For each position along the common shape, the operands' positions.
    pub fn positions(&self) -> impl Iterator<Item = [usize; N]> + '_ {
        (0..self.dims.iter().product()).map(move |mut position: usize| {
            let mut at = [0; N];
            for axis in (0..MAX_RANK).rev() {
                let coordinate = position % self.dims[axis];
                position /= self.dims[axis];
                (0..N).for_each(|n| at[n] += coordinate * self.strides[n][axis]);
            }
            at
        })
    }
}

/// The output of an elementwise op on two broadcast inputs.
///
/// # Errors
/// When they do not broadcast together.
pub fn infer_binary(op: &str, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
    let [a, b] = expect_f32(op, inputs)?;
    let shape = broadcast(op, &a, &b)?;
    Walk::new(op, &shape, [&a, &b])?;
    Ok(vec![TensorType::f32(shape)])
}

/// The launch of an elementwise kernel on two broadcast inputs, the function chosen by `define`.
///
/// # Errors
/// As [`infer_binary`].
pub fn lower_binary(
    shader: Shader,
    define: &'static str,
    inputs: &[&TensorType],
    output_type: &TensorType,
) -> Result<Lowering> {
    let shape = &output_type.shape;
    let walk = Walk::new(shader.name, shape, [&inputs[0].shape, &inputs[1].shape])?;
    let kernel = walk.constants(
        Kernel::linear(shader, 64).define(define),
        ["D1", "D2", "D3"],
        [["A0", "A1", "A2", "A3"], ["B0", "B1", "B2", "B3"]],
    );
    Ok(elementwise(kernel, shape.elements(), vec![input(0), input(1), output(0)]).into())
}

/// `f` of every pair of elements of two tensors that broadcast together.
pub fn reference_binary(a: &Reference, b: &Reference, f: impl Fn(f64, f64) -> f64) -> Reference {
    let shape = broadcast("reference", &a.shape, &b.shape).expect("checked by infer");
    let walk = Walk::new("reference", &shape, [&a.shape, &b.shape]).expect("checked by infer");
    let data = walk.positions().map(|[i, j]| f(a.data[i], b.data[j])).collect();
    Reference { shape, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::from(dims.to_vec())
    }

    #[test]
    fn shapes_broadcast_by_numpys_rules() {
        let of = |a: &[usize], b: &[usize]| broadcast("add", &shape(a), &shape(b));
        assert_eq!(of(&[5, 3], &[3]).unwrap(), shape(&[5, 3]));
        assert_eq!(of(&[2, 1, 4], &[3, 1]).unwrap(), shape(&[2, 3, 4]));
        assert_eq!(of(&[], &[2]).unwrap(), shape(&[2]));
        let message = of(&[5, 3], &[4]).unwrap_err().to_string();
        assert_eq!(message, "add: shapes [5, 3] and [4] do not broadcast together");
    }

    #[test]
    fn contiguous_dimensions_merge() {
        let full = shape(&[2, 3, 4, 5, 6]);
        let walk = Walk::new("add", &full, [&full, &shape(&[4, 1, 1])]).unwrap();
        assert_eq!(walk.dims, [6, 4, 30, 1]);
        assert_eq!(walk.strides, [vec![120, 30, 1, 0], vec![0, 1, 0, 0]]);
    }

    #[test]
    fn positions_follow_the_strides() {
        let walk = Walk::new("add", &shape(&[2, 3]), [&shape(&[2, 1]), &shape(&[3])]).unwrap();
        assert_eq!(walk.positions().collect::<Vec<_>>(), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
    }
}
