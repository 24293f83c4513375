//! What the files of ops are written with, taken by `use super::prelude::*`. The ops that one is made of it names
//! itself.

pub(super) use super::expect::{
    expect_all_f32, expect_count, expect_dtype, expect_equal_shapes, expect_f32, expect_shape, expect_types,
};
pub(super) use super::{Backward, Emit, Example, Fill, Op, Reference, Scalar, ValueId};
pub(super) use crate::error::{Error, Result};
pub(super) use crate::kernel::shader::shader;
pub(super) use crate::kernel::{
    Access, Kernel, Launch, Lowering, Operand, Shader, Step, Target, Tiling, elementwise, input, output,
};
pub(super) use crate::onnx::{self, Attribute, Builder, Value};
pub(super) use crate::tensor::{DType, Shape, TensorType};
