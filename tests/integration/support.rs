//! What several tests share: filling tensors, comparing them, and the one table of tolerances.

use everygpu::op::{Example, Fill, Reference};
use everygpu::rng::Stream;
use everygpu::tensor::{DType, Elements, HostTensor, TensorType};

/// Allowed difference from an f64 reference: |x − ref| ≤ absolute + relative·|ref|.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub absolute: f64,
    pub relative: f64,
}

/// f32 kernels. An exception stands where it is used, with its reason.
pub const F32: Tolerance = Tolerance { absolute: 2e-5, relative: 2e-5 };

/// The largest difference in units of what `tolerance` allows (≤ 1 passes; NaN where the reference has none is infinite).
pub fn worst(got: &[f32], reference: &[f64], tolerance: Tolerance) -> f64 {
    assert_eq!(got.len(), reference.len(), "lengths differ");
    let excess = |(&x, &r): (&f32, &f64)| {
        let allowed = tolerance.absolute + tolerance.relative * r.abs();
        let difference = (f64::from(x) - r).abs();
        if difference.is_nan() { f64::INFINITY } else { difference / allowed }
    };
    got.iter().zip(reference).map(excess).fold(0.0, f64::max)
}

/// A tensor of `ty` filled as `fill` says, from the stream's numbers.
pub fn filled(ty: &TensorType, fill: Fill, stream: &mut Stream) -> HostTensor {
    let n = ty.shape.elements();
    let mut float = |f: &mut dyn FnMut(&mut Stream) -> f64| (0..n).map(|_| f(stream) as f32).collect::<Vec<_>>();
    let elements = match (ty.dtype, fill) {
        (DType::F32, Fill::Normal) => Elements::F32(float(&mut Stream::normal)),
        (DType::F32, Fill::Weights) => Elements::F32(float(&mut |s| s.normal() / 16.0)),
        (DType::F32, Fill::Positive) => Elements::F32(float(&mut |s| s.uniform() + 0.5)),
        (DType::U32, Fill::Below(bound)) => {
            Elements::U32((0..n).map(|_| stream.below(u64::from(bound)) as u32).collect())
        }
        (dtype, fill) => panic!("{fill:?} does not fill {dtype}"),
    };
    HostTensor::new(ty.shape.clone(), elements).expect("as many elements as the shape has")
}

/// The inputs of an example.
pub fn example_inputs(example: &Example, seed: u64) -> Vec<HostTensor> {
    let mut stream = Stream::new(seed, "example");
    example.inputs.iter().map(|(ty, fill)| filled(ty, *fill, &mut stream)).collect()
}

/// Σ aᵢbᵢ.
pub fn dot(a: &Reference, b: &Reference) -> f64 {
    assert_eq!(a.shape, b.shape, "shapes differ");
    a.data.iter().zip(&b.data).map(|(x, y)| x * y).sum()
}

#[test]
fn the_comparison_can_fail() {
    assert!(worst(&[1.0], &[1.0], F32) <= 1.0);
    assert!(worst(&[1.0, 1.001], &[1.0, 1.0], F32) > 1.0);
    assert!(worst(&[f32::NAN], &[1.0], F32) > 1.0);
    assert!(worst(&[f32::INFINITY], &[1.0], F32) > 1.0);
}
