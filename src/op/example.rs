//! Cases that ops are tested, benchmarked and self-tested with, and how their inputs are filled.

use std::sync::Arc;

use super::Op;
use crate::rng::Stream;
use crate::tensor::{DType, Elements, HostTensor, TensorType};

/// How a test fills an input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Standard normal.
    Normal,
    /// Normal with standard deviation 1/16, as initial weights: long sums stay near 1, and so does their rounding.
    Weights,
    /// Uniform in [0.5, 1.5): away from zero.
    Positive,
    /// Normal with standard deviation 30: far into saturation, and beyond where exp overflows.
    Wide,
    /// Whole numbers from −2 to 2, as floats: equal ones are common.
    Whole,
    /// 0 or 1, as floats: conditions, which are not differentiated.
    Mask,
    /// Integers below a bound.
    Below(u32),
}

impl Fill {
    /// A tensor of `ty`, filled from the stream's numbers.
    ///
    /// # Panics
    /// When this does not give elements of that type: a bug in the example.
    pub fn tensor(self, ty: &TensorType, stream: &mut Stream) -> HostTensor {
        let n = ty.shape.elements();
        let mut float = |f: &mut dyn FnMut(&mut Stream) -> f64| (0..n).map(|_| f(stream) as f32).collect::<Vec<_>>();
        let elements = match (ty.dtype, self) {
            (DType::F32, Self::Normal) => Elements::F32(float(&mut Stream::normal)),
            (DType::F32, Self::Weights) => Elements::F32(float(&mut |s| s.normal() / 16.0)),
            (DType::F32, Self::Positive) => Elements::F32(float(&mut |s| s.uniform() + 0.5)),
            (DType::F32, Self::Wide) => Elements::F32(float(&mut |s| s.normal() * 30.0)),
            (DType::F32, Self::Whole) => Elements::F32(float(&mut |s| s.below(5) as f64 - 2.0)),
            (DType::F32, Self::Mask) => Elements::F32(float(&mut |s| s.below(2) as f64)),
            (DType::U32, Self::Below(bound)) => {
                Elements::U32((0..n).map(|_| stream.below(u64::from(bound)) as u32).collect())
            }
            (dtype, fill) => panic!("{fill:?} does not fill {dtype}"),
        };
        HostTensor::new(ty.shape.clone(), elements).expect("as many elements as the shape has")
    }
}

/// One case that an op is tested (and benchmarked) with.
#[derive(Debug, Clone)]
pub struct Example {
    /// The op with its attributes.
    pub op: Arc<dyn Op>,
    /// Input types, and what to fill them with.
    pub inputs: Vec<(TensorType, Fill)>,
}

impl Example {
    /// An example over normally distributed f32 inputs of these shapes.
    pub fn new<const N: usize>(op: impl Op + 'static, shapes: [&[usize]; N]) -> Self {
        let inputs = shapes.iter().map(|s| (TensorType::f32(s.to_vec()), Fill::Normal)).collect();
        Self { op: Arc::new(op), inputs }
    }

    /// The same with the input of this index filled like weights.
    pub fn weights(mut self, index: usize) -> Self {
        self.inputs[index].1 = Fill::Weights;
        self
    }

    /// The same with `labels`, u32 below `classes`, as a further input.
    pub fn labels(mut self, shape: &[usize], classes: u32) -> Self {
        self.inputs.push((TensorType::u32(shape.to_vec()), Fill::Below(classes)));
        self
    }

    /// The same with the input of this index filled as a condition.
    pub fn mask(mut self, index: usize) -> Self {
        self.inputs[index].1 = Fill::Mask;
        self
    }

    /// The same with its f32 inputs filled as `fill` says.
    pub fn filled(mut self, fill: Fill) -> Self {
        self.inputs.iter_mut().filter(|(ty, _)| ty.dtype == DType::F32).for_each(|input| input.1 = fill);
        self
    }

    /// Its inputs, from the random numbers of `seed`.
    pub fn tensors(&self, seed: u64) -> Vec<HostTensor> {
        let mut stream = Stream::new(seed, "example");
        self.inputs.iter().map(|(ty, fill)| fill.tensor(ty, &mut stream)).collect()
    }
}
