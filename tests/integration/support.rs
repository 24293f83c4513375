//! What several tests share beside what the library has: how tensors are compared.

use everygpu::op::Tolerance;
use everygpu::tensor::DType;

/// f32 kernels. An exception stands where it is used, with its reason.
pub const F32: Tolerance = Tolerance::of(DType::F32);
