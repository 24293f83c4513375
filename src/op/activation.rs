//! Elementwise activations.

use super::activation_grad::ActivationGrad;
use super::kernel::{elementwise, input, output};
use super::{Backward, Emit, Entry, Example, Kernel, Lowering, Op, Reference, Step, Target, ValueId, expect_f32};
use crate::error::Result;
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "activation", examples };

/// A nonlinearity, as an op of its own or as a matrix product's epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// max(x, 0)
    Relu,
    /// x Φ(x), with the error function (Hendrycks and Gimpel, 2016; not the tanh approximation).
    Gelu,
    /// tanh(x)
    Tanh,
    /// 1 / (1 + exp(−x))
    Sigmoid,
}

impl Activation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::Tanh, Self::Sigmoid];

    /// The definition that selects it in `shaders/shared/activation.wgsl`.
    pub(super) fn definition(self) -> &'static str {
        match self {
            Self::Relu => "RELU",
            Self::Gelu => "GELU",
            Self::Tanh => "TANH",
            Self::Sigmoid => "SIGMOID",
        }
    }

    /// Whether the derivative is computed from the output, so that the input need not be kept.
    pub fn grad_from_output(self) -> bool {
        self != Self::Gelu
    }

    /// The function, in f64.
    pub(super) fn eval(self, x: f64) -> f64 {
        match self {
            Self::Relu => x.max(0.0),
            Self::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        }
    }

    /// The derivative in f64, from the input or the output as [`Activation::grad_from_output`] says.
    pub(super) fn eval_grad(self, v: f64) -> f64 {
        match self {
            Self::Relu => f64::from(v > 0.0),
            Self::Gelu => {
                let density = (-0.5 * v * v).exp() / std::f64::consts::TAU.sqrt();
                0.5 * (1.0 + libm::erf(v * std::f64::consts::FRAC_1_SQRT_2)) + v * density
            }
            Self::Tanh => 1.0 - v * v,
            Self::Sigmoid => v * (1.0 - v),
        }
    }
}

impl Op for Activation {
    fn name(&self) -> &'static str {
        "activation"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("activation"), 64).define(self.definition());
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let v = if self.grad_from_output() { node.outputs[0] } else { node.inputs[0] };
        let dy = node.dy()?;
        Ok(vec![node.when(0, || emit.emit(ActivationGrad(*self), &[v, dy]))?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].map(|x| self.eval(x))]
    }
}

fn examples() -> Vec<Example> {
    let mut examples: Vec<_> = Activation::ALL.map(|f| Example::new(f, [&[7, 13]])).into();
    examples.extend([1, 63, 65].map(|n| Example::new(Activation::Relu, [&[n]])));
    examples
}
