//! Reductions over chosen axes, made of other ops. Axes are counted from 0, in any order; none means all. With `keep`,
//! the result keeps them with extent 1.

use super::prelude::*;
use super::{Argmax, Gather, Math, Reshape, SumTo, Transpose};

/// The axes in ascending order.
fn sorted(op: &str, x: &Shape, axes: &[usize]) -> Result<Vec<usize>> {
    let mut all: Vec<usize> = if axes.is_empty() { (0..x.rank()).collect() } else { axes.to_vec() };
    all.sort_unstable();
    all.dedup();
    if (!axes.is_empty() && all.len() != axes.len()) || all.iter().any(|&axis| axis >= x.rank()) {
        let message = format!("expected different axes below {} for {x}, got {axes:?}", x.rank());
        return Err(Error::shape(op, message));
    }
    Ok(all)
}

/// `x` without `axes`, or with `keep` with them as 1.
fn reduced(x: &Shape, axes: &[usize], keep: bool) -> Shape {
    let dims = x.dims().iter().enumerate();
    let kept = dims.filter(|(axis, _)| keep || !axes.contains(axis));
    kept.map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim }).collect::<Vec<_>>().into()
}

fn reshaped(emit: &mut dyn Emit, x: ValueId, shape: Shape) -> Result<ValueId> {
    if emit.shape_of(x) == shape { Ok(x) } else { emit.emit(Reshape(shape), &[x]) }
}

/// Sums, in a fixed order.
///
/// # Errors
/// For an axis that x does not have, or twice the same.
pub fn sum(emit: &mut dyn Emit, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
    let shape = emit.shape_of(x);
    let axes = sorted("sum", &shape, axes)?;
    let kept = reduced(&shape, &axes, true);
    let y = if kept == shape { x } else { emit.emit(SumTo(kept), &[x])? };
    reshaped(emit, y, reduced(&shape, &axes, keep))
}

/// Means.
///
/// # Errors
/// As [`sum`], and where there is nothing to take the mean of.
pub fn mean(emit: &mut dyn Emit, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
    let shape = emit.shape_of(x);
    let terms: usize = sorted("mean", &shape, axes)?.iter().map(|&axis| shape[axis]).product();
    if terms == 0 {
        return Err(Error::shape("mean", format!("expected axes that are not empty, got {axes:?} of {shape}")));
    }
    let y = sum(emit, x, axes, keep)?;
    emit.emit(Math::Scale((1.0 / terms as f32).into()), &[y])
}

/// x with `axes` merged into one, and that one's number.
fn merged(emit: &mut dyn Emit, x: ValueId, axes: &[usize]) -> Result<(ValueId, usize)> {
    let shape = emit.shape_of(x);
    let extent: usize = axes.iter().map(|&axis| shape[axis]).product();
    let Some((&first, &last)) = axes.first().zip(axes.last()) else {
        // A scalar.
        return Ok((reshaped(emit, x, [1].into())?, 0));
    };
    if last + 1 - first == axes.len() {
        let dims = [&shape.dims()[..first], &[extent], &shape.dims()[last + 1..]].concat();
        return Ok((reshaped(emit, x, dims.into())?, first));
    }
    let mut order: Vec<usize> = (0..shape.rank()).filter(|axis| !axes.contains(axis)).collect();
    let kept: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
    order.extend(axes);
    let x = emit.emit(Transpose { axes: order }, &[x])?;
    let axis = kept.len();
    Ok((reshaped(emit, x, [kept, vec![extent]].concat().into())?, axis))
}

/// Positions of the largest elements, u32, in row-major order of the reduced axes; of the first where several are
/// equal. They have no gradient.
///
/// # Errors
/// As [`mean`].
pub fn argmax(emit: &mut dyn Emit, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
    let shape = emit.shape_of(x);
    let axes = sorted("argmax", &shape, axes)?;
    let (x, axis) = merged(emit, x, &axes)?;
    let y = emit.emit(Argmax { axis }, &[x])?;
    reshaped(emit, y, reduced(&shape, &axes, keep))
}

/// Largest elements. The gradient goes to the first where several are equal.
///
/// # Errors
/// As [`mean`].
pub fn max(emit: &mut dyn Emit, x: ValueId, axes: &[usize], keep: bool) -> Result<ValueId> {
    let shape = emit.shape_of(x);
    let axes = sorted("max", &shape, axes)?;
    let (x, axis) = merged(emit, x, &axes)?;
    let first = emit.emit(Argmax { axis }, &[x])?;
    let y = emit.emit(Gather { axis }, &[x, first])?;
    reshaped(emit, y, reduced(&shape, &axes, keep))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, interpret};

    type Reduce = fn(&mut dyn Emit, ValueId, &[usize], bool) -> Result<ValueId>;

    /// The reduction of 0, 5, 3, 1, 6, 4, 2, 0, … (multiples of 5 modulo 7), and its gradient.
    fn run(reduce: Reduce, shape: &[usize], axes: &[usize], keep: bool) -> (Reference, Option<Vec<f64>>) {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32(shape.to_vec()));
        let y = reduce(&mut graph, x, axes, keep).unwrap();
        let ty = graph.type_of(y).clone();
        let mut inputs = vec![Reference::from_fn(shape.to_vec(), |i| (5 * i % 7) as f64)];
        let mut wanted = vec![y];
        if ty == TensorType::f32(ty.shape.clone()) {
            let seed = graph.input("seed", ty.clone());
            inputs.push(Reference::from_fn(ty.shape, |i| 1.0 + i as f64));
            wanted.extend(graph.differentiate(y, seed, &[x]).unwrap().remove(0));
        }
        let mut values = interpret(&graph, &inputs, &[], &Step::default(), &wanted).unwrap();
        let gradient = if values.len() == 2 { values.pop().map(|g| g.data) } else { None };
        (values.remove(0), gradient)
    }

    #[test]
    fn sums_and_means_over_chosen_axes() {
        let (y, gradient) = run(sum, &[2, 3], &[1], false);
        assert_eq!((y.shape, y.data), ([2].into(), vec![8.0, 11.0]));
        assert_eq!(gradient.unwrap(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        let (y, gradient) = run(mean, &[2, 2, 2], &[2, 0], true);
        assert_eq!((y.shape, y.data), ([1, 2, 1].into(), vec![3.75, 1.5]));
        assert_eq!(gradient.unwrap(), [0.25, 0.25, 0.5, 0.5, 0.25, 0.25, 0.5, 0.5]);
        assert_eq!(run(sum, &[2, 3], &[], false).0, Reference { shape: Shape::from([0; 0]), data: vec![19.0] });
    }

    #[test]
    fn maxima_and_their_positions() {
        let (y, gradient) = run(max, &[2, 3], &[1], true);
        assert_eq!((y.shape, y.data), ([2, 1].into(), vec![5.0, 6.0]));
        assert_eq!(gradient.unwrap(), [0.0, 1.0, 0.0, 0.0, 2.0, 0.0]);
        assert_eq!(run(argmax, &[2, 3], &[1], false).0.data, [1.0, 1.0]);
        // Axes 0 and 2 of [[0 5] [3 1]] [[6 4] [2 0]]: 0 5 6 4 and 3 1 2 0.
        let (y, gradient) = run(max, &[2, 2, 2], &[0, 2], false);
        assert_eq!((y.shape, y.data), ([2].into(), vec![6.0, 3.0]));
        assert_eq!(gradient.unwrap(), [0.0, 0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(run(argmax, &[2, 2, 2], &[2, 0], false).0.data, [2.0, 0.0]);
        // 0 5 3 1 6 4 2 0 5: the second 5 does not count.
        assert_eq!(run(max, &[3, 3], &[0, 1], false).1.unwrap()[4], 1.0);
    }

    #[test]
    fn axes_are_checked() {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32([2, 3]));
        let error = sum(&mut graph, x, &[1, 1], false).unwrap_err();
        assert_eq!(error.to_string(), "sum: expected different axes below 2 for [2, 3], got [1, 1]");
        let empty = graph.input("empty", TensorType::f32([2, 0]));
        let error = mean(&mut graph, empty, &[1], false).unwrap_err();
        assert_eq!(error.to_string(), "mean: expected axes that are not empty, got [1] of [2, 0]");
    }
}
