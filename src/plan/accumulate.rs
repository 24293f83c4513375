//! The kernels that add a micro-batch's result to a step's sum.

use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel, Launch, Operand, elementwise};

/// sum += x over `count` elements: operand 0 is x, operand 1 the sum.
pub(crate) fn kernel(count: usize) -> Launch {
    let operands = vec![(Operand::Input(0), Access::Read), (Operand::Output(0), Access::ReadWrite)];
    elementwise(Kernel::linear(shader!("accumulate"), 64), count, operands).adding()
}

/// Merges Σ(x − mean)² over n values into that of a step. Operands 0 to 2 are a micro-batch's Σ(x − mean)², Σ(x − r)
/// and n, 3 to 5 the step's, of which this changes the first; the others are to be added to afterwards.
pub(crate) fn pool_kernel(count: usize) -> Launch {
    let of_micro_batch = (0..3).map(|i| (Operand::Input(i), Access::Read));
    let of_step = (0..3).map(|i| (Operand::Output(i), Access::ReadWrite));
    let operands = of_micro_batch.chain(of_step).collect();
    elementwise(Kernel::linear(shader!("pool_deviations"), 64), count, operands).adding()
}
