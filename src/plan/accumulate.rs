//! The kernel that adds a micro-batch's result to a step's sum.

use crate::op::shader::shader;
use crate::op::{Access, Kernel, Launch, Operand, kernel::elementwise};

/// sum += x over `count` elements: operand 0 is x, operand 1 the sum.
pub fn kernel(count: usize) -> Launch {
    let operands = vec![(Operand::Input(0), Access::Read), (Operand::Output(0), Access::ReadWrite)];
    elementwise(Kernel::linear(shader!("accumulate"), 64), count, operands)
}
