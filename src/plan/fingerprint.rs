//! A cheap fingerprint of each parameter bucket, computed on the device: equal weights have equal fingerprints, and a
//! single differing bit changes it (up to a 2⁻⁶⁴ chance).

use super::{Buffer, Dispatch, Layout, View};
use crate::error::Result;
use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel, Launch, Operand, Target};

/// Bytes of one bucket's fingerprint: two 32-bit words.
pub(crate) const FINGERPRINT_BYTES: u64 = 8;

const WORKGROUP: u32 = 64;
/// Elements that one invocation mixes.
const EACH: usize = 16;

/// The dispatches that leave each bucket's fingerprint in [`Buffer::Fingerprints`], one every [`super::ALIGNMENT`]
/// bytes; the buffer must be zero before.
///
/// # Errors
/// When a kernel does not fit the target.
pub(crate) fn fingerprints(layout: &Layout, target: &Target) -> Result<Vec<Dispatch>> {
    let dispatch = |(bucket, &bytes): (usize, &u64)| {
        let count = bytes as usize / 4;
        let kernel = Kernel::linear(shader!("fingerprint"), WORKGROUP).constant("COUNT", count).constant("EACH", EACH);
        let operands = vec![(Operand::Input(0), Access::Read), (Operand::Output(0), Access::ReadWrite)];
        let groups = count.div_ceil(WORKGROUP as usize * EACH);
        let launch = Launch::new(kernel, operands, groups);
        let offset = bucket as u64 * super::ALIGNMENT;
        let views = vec![
            View { buffer: Buffer::Parameter(bucket), offset: 0, bytes },
            View { buffer: Buffer::Fingerprints, offset, bytes: FINGERPRINT_BYTES },
        ];
        Dispatch::new(launch, views, "fingerprint", target)
    };
    layout.buckets().iter().enumerate().map(dispatch).collect()
}
