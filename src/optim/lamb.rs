//! LAMB's update: two passes over each parameter, since its step depends on norms of the whole parameter. The first
//! moves the moments on and leaves partial sums of squares, of the weights and of their step, one a workgroup; in the
//! second each workgroup adds these up, in the same order, and updates its elements. Nothing depends on the devices'
//! timing.

use super::groups::Treatment;
use super::optimizer::Optimizer;
use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel};
use crate::plan::{Buffer, View};

/// Elements that one workgroup takes.
const CHUNK: u64 = 16_384;
pub(super) const WORKGROUP: u32 = 256;

/// A kernel with what it binds, and its workgroups.
pub(super) type Pass = (Kernel, Vec<View>, Vec<Access>, u64);

/// Bytes of the partial sums of a parameter of `bytes`.
pub(super) fn partials(bytes: u64) -> u64 {
    chunks(bytes) * 8
}

fn chunks(bytes: u64) -> u64 {
    (bytes / 4).div_ceil(CHUNK)
}

/// The two passes over a parameter: a range of `bucket` given by `view`. `norm` is where the outcome of the norm pass
/// is, `partials` has room for the partial sums.
pub(super) fn passes(
    optimizer: &Optimizer,
    treatment: Treatment,
    bucket: usize,
    view: impl Fn(Buffer) -> View,
    norm: View,
    partials: View,
) -> [Pass; 2] {
    let (weights, gradient) = (view(Buffer::Parameter(bucket)), view(Buffer::Gradient(bucket)));
    let [m, v] = [0, 1].map(|moment| view(Buffer::State { moment, bucket }));
    let groups = chunks(weights.bytes);
    let sized = |kernel: Kernel| {
        let count = weights.bytes as usize / 4;
        kernel.constant("CHUNK", CHUNK as u32).size("count", count).size("chunks", groups as usize)
    };
    let (read, write) = (Access::Read, Access::ReadWrite);
    let last = optimizer.kernel(treatment);
    let first = Kernel { shader: shader!("lamb_norms"), ..last.clone() };
    [
        (
            sized(first),
            vec![weights, gradient, norm, m, v, partials],
            vec![read, read, read, write, write, write],
            groups,
        ),
        (sized(last), vec![weights, norm, m, v, partials], vec![write, read, read, read, read], groups),
    ]
}
