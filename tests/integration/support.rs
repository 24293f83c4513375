//! What several tests share beside what the library has: filling tensors and comparing them.

use everygpu::op::{Reference, Tolerance};
use everygpu::tensor::DType;

/// f32 kernels. An exception stands where it is used, with its reason.
pub const F32: Tolerance = Tolerance::of(DType::F32);

/// Σ aᵢbᵢ.
pub fn dot(a: &Reference, b: &Reference) -> f64 {
    assert_eq!(a.shape, b.shape, "shapes differ");
    a.data.iter().zip(&b.data).map(|(x, y)| x * y).sum()
}
