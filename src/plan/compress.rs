//! Gradients in half the bits on their way to the host, for slow buses. Each device keeps what rounding took away and
//! adds it to its next gradient before that is rounded (error feedback: Seide et al., "1-bit stochastic gradient
//! descent and its application to data-parallel distributed training of speech DNNs", 2014; Karimireddy et al., "Error
//! feedback fixes SignSGD and other gradient compression schemes", 2019). The host unpacks and adds in f32, as without.

use half::{bf16, f16};

use super::{Buffer, Dispatch, Layout, View};
use crate::error::Result;
use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel, Operand, Target, elementwise};

/// How devices hand out gradients that are summed on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As they are, in f32.
    #[default]
    None,
    /// As f16: 11 significant bits. Gradients are scaled by a power of two first (see [`Compression::scale`]); one that
    /// is too large nevertheless counts as not finite.
    F16,
    /// As bf16: 8 significant bits, and the range of f32.
    Bf16,
}

/// Averaged gradients are multiplied by about 2 to this power. So f16 has elements up to about 2,900 in size, which is
/// beyond what training survives, with 11 bits down to 5e-6, and in steps of 4e-9 below (what is less is sent once
/// enough of it has come together).
const EXPONENT: f64 = 4.0;

impl Compression {
    /// What the sums of a step of this weight are multiplied by before they are rounded: the power of two that is
    /// nearest to 2⁴/W. It makes them about 16 times the mean gradient, whatever the batch, and is undone without any
    /// rounding.
    pub fn scale(self, weight_sum: f64) -> f32 {
        match self {
            Self::None => 0.0,
            Self::F16 | Self::Bf16 => (EXPONENT - weight_sum.log2().round()).clamp(-100.0, 100.0).exp2() as f32,
        }
    }

    /// The sums that a device has packed, in `values`.
    pub fn unpack(self, packed: &[u8], scale: f32, values: &mut Vec<f32>) {
        let codes = packed.chunks_exact(2).map(|bytes| [bytes[0], bytes[1]]);
        let value = |code: [u8; 2]| match self {
            Self::F16 => f16::from_le_bytes(code).to_f32(),
            Self::Bf16 | Self::None => bf16::from_le_bytes(code).to_f32(),
        };
        values.clear();
        values.extend(codes.map(|code| value(code) / scale));
    }
}

const WORKGROUP: u32 = 64;

/// A dispatch for each bucket of trained parameters that packs [`Buffer::Gradient`] into [`Buffer::Packed`]; none
/// without compression.
///
/// # Errors
/// When a kernel does not fit the target.
pub(crate) fn compressions(compression: Compression, layout: &Layout, target: &Target) -> Result<Vec<Dispatch>> {
    if compression == Compression::None {
        return Ok(Vec::new());
    }
    let dispatch = |(bucket, &bytes): (usize, &u64)| {
        let kernel = Kernel::linear(shader!("compress"), WORKGROUP).define_if(compression == Compression::F16, "F16");
        let operands = vec![
            (Operand::Input(0), Access::Read),
            (Operand::Scratch(0), Access::ReadWrite),
            (Operand::Output(0), Access::ReadWrite),
        ];
        let launch = elementwise(kernel, bytes as usize / 8, operands);
        let view = |buffer, bytes| View { buffer, offset: 0, bytes };
        let views = vec![
            view(Buffer::Gradient(bucket), bytes),
            view(Buffer::Residual(bucket), bytes),
            view(Buffer::Packed(bucket), bytes / 2),
        ];
        Dispatch::new(launch, views, "compress", target)
    };
    layout.buckets().iter().enumerate().take(layout.trained_buckets()).map(dispatch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_a_power_of_two_near_16_over_the_weight() {
        for (weight, scale) in [(1.0, 16.0), (64.0, 0.25), (60.0, 0.25), (100.0, 0.125), (0.5, 32.0)] {
            assert_eq!(Compression::F16.scale(weight), scale, "{weight}");
        }
        assert_eq!(Compression::Bf16.scale(1e300), 2_f32.powi(-100));
    }

    #[test]
    fn packed_values_are_unpacked() {
        let unpacked = |compression: Compression, codes: &[u16]| {
            let mut values = vec![9.0; 3];
            let bytes: Vec<u8> = codes.iter().flat_map(|code| code.to_le_bytes()).collect();
            compression.unpack(&bytes, 2.0, &mut values);
            values
        };
        // 1, −2, 65504, 2⁻¹⁴, ∞, −0, 1 + 2⁻¹⁰, −3·2⁻²⁴
        let f16 = unpacked(Compression::F16, &[0x3c00, 0xc000, 0x7bff, 0x0400, 0x7c00, 0x8000, 0x3c01, 0x8003]);
        let expected =
            [0.5, -1.0, 32752.0, 2_f32.powi(-15), f32::INFINITY, -0.0, 0.5 + 2_f32.powi(-11), -1.5 * 2_f32.powi(-24)];
        assert_eq!(f16.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected.map(f32::to_bits));
        let bf16 = unpacked(Compression::Bf16, &[0x3f80, 0xc000, 0x7f80, 0x3f81]);
        assert_eq!(bf16, [0.5, -1.0, f32::INFINITY, 0.5 + 2_f32.powi(-8)]);
    }
}
