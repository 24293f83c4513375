//! Kernels that reduce along rows: a workgroup a row, or an invocation a row where rows are short. The shaders get it
//! from `shaders/shared/rows.wgsl`.

use super::prelude::*;

/// Longest row that one invocation takes alone. Software adapters pay for each barrier, and have no lanes that idle.
fn serial(target: &Target) -> usize {
    match target.tiling {
        Tiling::Registers => 1024,
        Tiling::Workgroup => 32,
    }
}

/// A launch over `rows` rows of `columns` elements; the shader gets them as `sizes.rows` and
/// `COLUMNS`.
pub fn launch(
    shader: Shader,
    target: &Target,
    rows: usize,
    columns: usize,
    operands: Vec<(Operand, Access)>,
) -> Launch {
    let serial = columns <= serial(target);
    let workgroup = if serial || columns <= 256 { 64 } else { 256 };
    let kernel =
        Kernel::linear(shader, workgroup).define_if(serial, "SERIAL").size("rows", rows).constant("COLUMNS", columns);
    Launch::new(kernel, operands, if serial { rows.div_ceil(workgroup as usize) } else { rows })
}

/// Rows and columns along the last dimension.
///
/// # Errors
/// When there is no dimension, or the last one is empty.
pub fn along_last(op: &str, x: &Shape) -> Result<(usize, usize)> {
    match x.dims() {
        [lead @ .., columns] if *columns > 0 => Ok((lead.iter().product(), *columns)),
        _ => Err(Error::shape(op, format!("expected a last dimension that is not empty, got {x}"))),
    }
}

/// Checks (logits [..., C], labels u32 [...]) and returns the labels' shape.
///
/// # Errors
/// When the types or shapes are others.
pub fn expect_labels(op: &str, logits: &TensorType, labels: &TensorType) -> Result<Shape> {
    expect_dtype(op, 0, logits, DType::F32)?;
    expect_dtype(op, 1, labels, DType::U32)?;
    along_last(op, &logits.shape)?;
    let lead = &logits.shape.dims()[..logits.shape.rank() - 1];
    if labels.shape.dims() != lead {
        let expected = Shape::from(lead);
        let message = format!("expected labels {expected} for logits {}, got {}", logits.shape, labels.shape);
        return Err(Error::shape(op, message));
    }
    Ok(labels.shape.clone())
}
