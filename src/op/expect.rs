//! Checks of an op's inputs, which shape rules are made of. An error says what was expected and what was given.

use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, TensorType};

/// Checks the number of inputs and that all are f32: the start of most shape rules.
///
/// # Errors
/// When they are others.
pub fn expect_f32<const N: usize>(op: &str, inputs: &[&TensorType]) -> Result<[Shape; N]> {
    Ok(expect_types(op, inputs, [DType::F32; N])?.map(|input| input.shape.clone()))
}

/// Checks the number of inputs and their element types.
///
/// # Errors
/// When they are others.
pub fn expect_types<'a, const N: usize>(
    op: &str,
    inputs: &[&'a TensorType],
    types: [DType; N],
) -> Result<[&'a TensorType; N]> {
    expect_count(op, N, inputs)?;
    inputs.iter().zip(types).enumerate().try_for_each(|(i, (input, dtype))| expect_dtype(op, i, input, dtype))?;
    Ok(std::array::from_fn(|i| inputs[i]))
}

/// Checks that two inputs of a backward kernel, a value and a cotangent, have the same shape.
///
/// # Errors
/// When they have not.
pub fn expect_equal_shapes(op: &str, value: &Shape, cotangent: &Shape) -> Result<()> {
    if value == cotangent {
        return Ok(());
    }
    Err(Error::shape(op, format!("expected equal shapes, got {value} and {cotangent}")))
}

/// Checks that there are `count` inputs, all of them f32: for an op whose attributes say how many it takes.
pub(super) fn expect_all_f32(op: &str, count: usize, inputs: &[&TensorType]) -> Result<()> {
    expect_count(op, count, inputs)?;
    inputs.iter().enumerate().try_for_each(|(i, input)| expect_dtype(op, i, input, DType::F32))
}

/// Checks the number of inputs.
pub(super) fn expect_count(op: &str, count: usize, inputs: &[&TensorType]) -> Result<()> {
    if inputs.len() == count {
        return Ok(());
    }
    Err(Error::shape(op, format!("expected {count} inputs, got {}", inputs.len())))
}

/// Checks one input's element type.
pub(super) fn expect_dtype(op: &str, index: usize, input: &TensorType, dtype: DType) -> Result<()> {
    if input.dtype == dtype {
        return Ok(());
    }
    Err(Error::shape(op, format!("input {index}: expected {dtype}, got {input}")))
}

/// Checks the shape of an input, which `what` names.
pub(super) fn expect_shape(op: &str, what: &str, expected: &Shape, given: &Shape) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::shape(op, format!("expected {what} {expected}, got {given}")))
}

/// The words with which an op refuses f32 inputs of these shapes.
#[cfg(test)]
pub(super) fn refusal(op: &dyn super::Op, shapes: &[&[usize]]) -> String {
    let types: Vec<_> = shapes.iter().map(|shape| TensorType::f32(shape.to_vec())).collect();
    op.infer(&types.iter().collect::<Vec<_>>()).unwrap_err().to_string()
}
