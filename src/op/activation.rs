//! Elementwise activations.

use super::activation_grad::ActivationGrad;
use super::prelude::*;

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
    /// x above 0, else slope · x (Maas et al., "Rectifier nonlinearities improve neural network acoustic models",
    /// 2013).
    LeakyRelu(Scalar),
    /// x above 0, else α (exp(x) − 1) (Clevert et al., 2016).
    Elu(Scalar),
    /// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, the approximation of [`Activation::Gelu`] that GPT-2 was trained
    /// with.
    GeluTanh,
    /// x / (1 + exp(−x)) (Elfwing et al., 2018).
    Silu,
    /// x tanh(ln(1 + exp(x))) (Misra, 2019).
    Mish,
    /// ln(1 + exp(x))
    Softplus,
}

const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

impl Activation {
    /// All of them, those with a parameter at PyTorch's default.
    pub const ALL: [Self; 10] = [
        Self::Relu,
        Self::Gelu,
        Self::Tanh,
        Self::Sigmoid,
        Self::LeakyRelu(Scalar::new(0.01)),
        Self::Elu(Scalar::new(1.0)),
        Self::GeluTanh,
        Self::Silu,
        Self::Mish,
        Self::Softplus,
    ];

    /// The definition that selects it in `shaders/shared/activation.wgsl`.
    fn definition(self) -> &'static str {
        match self {
            Self::Relu => "RELU",
            Self::Gelu => "GELU",
            Self::Tanh => "TANH",
            Self::Sigmoid => "SIGMOID",
            Self::LeakyRelu(_) => "LEAKY_RELU",
            Self::Elu(_) => "ELU",
            Self::GeluTanh => "GELU_TANH",
            Self::Silu => "SILU",
            Self::Mish => "MISH",
            Self::Softplus => "SOFTPLUS",
        }
    }

    fn parameter(self) -> Option<(&'static str, Scalar)> {
        match self {
            Self::LeakyRelu(slope) => Some(("SLOPE", slope)),
            Self::Elu(alpha) => Some(("ALPHA", alpha)),
            _ => None,
        }
    }

    /// `kernel`, which imports `activation`, with this one; the identity where there is none.
    pub(super) fn define(activation: Option<Self>, kernel: Kernel) -> Kernel {
        let Some(activation) = activation else { return kernel };
        let kernel = kernel.define(activation.definition());
        match activation.parameter() {
            Some((name, value)) => kernel.constant(name, value),
            None => kernel,
        }
    }

    /// Checks the parameter of the activation of `op`.
    pub(super) fn check(activation: Option<Self>, op: &str) -> Result<()> {
        match activation.and_then(Self::parameter) {
            Some((name, value)) => value.check(op, &name.to_lowercase()),
            None => Ok(()),
        }
    }

    /// Writes f(x) into an ONNX model; x itself where there is no f.
    pub(super) fn write(activation: Option<Self>, model: &mut Builder, x: Value) -> Value {
        // x (1 + y) / 2
        let gate = |model: &mut Builder, y: Value| {
            let (sum, half) = (model.with_number("Add", &y, 1.0), model.with_number("Mul", &x, 0.5));
            model.binary("Mul", &half, &sum)
        };
        let with = |name, value: Scalar| [(name, Attribute::Float(value.get()))];
        match activation {
            None => x,
            Some(Self::Relu) => model.unary("Relu", &x),
            Some(Self::Tanh) => model.unary("Tanh", &x),
            Some(Self::Sigmoid) => model.unary("Sigmoid", &x),
            Some(Self::Softplus) => model.unary("Softplus", &x),
            Some(Self::LeakyRelu(slope)) => model.node("LeakyRelu", &[&x], &with("alpha", slope)),
            Some(Self::Elu(alpha)) => model.node("Elu", &[&x], &with("alpha", alpha)),
            Some(Self::Gelu) => {
                let scaled = model.with_number("Mul", &x, std::f32::consts::FRAC_1_SQRT_2);
                let erf = model.unary("Erf", &scaled);
                gate(model, erf)
            }
            Some(Self::GeluTanh) => {
                let square = model.binary("Mul", &x, &x);
                let factor = model.with_number("Mul", &square, 0.044715);
                let factor = model.with_number("Add", &factor, 1.0);
                let sum = model.binary("Mul", &x, &factor);
                let scaled = model.with_number("Mul", &sum, SQRT_2_OVER_PI as f32);
                let tanh = model.unary("Tanh", &scaled);
                gate(model, tanh)
            }
            Some(Self::Silu) => {
                let sigmoid = model.unary("Sigmoid", &x);
                model.binary("Mul", &x, &sigmoid)
            }
            Some(Self::Mish) => {
                let softplus = model.unary("Softplus", &x);
                let tanh = model.unary("Tanh", &softplus);
                model.binary("Mul", &x, &tanh)
            }
        }
    }

    /// All of them, for tests: with other parameters too, of which negative ones change the gradient's rule.
    pub(super) fn cases() -> impl Iterator<Item = Self> {
        let others = [Self::LeakyRelu, Self::Elu].map(|f: fn(Scalar) -> Self| [f(0.3.into()), f((-0.5).into())]);
        Self::ALL.into_iter().chain(others.into_iter().flatten())
    }

    /// Whether the derivative is computed from the output, so that the input need not be kept. (With a negative
    /// parameter, the sign of the output does not tell the input's.)
    pub fn grad_from_output(self) -> bool {
        match self {
            Self::Relu | Self::Tanh | Self::Sigmoid | Self::Softplus => true,
            Self::LeakyRelu(parameter) | Self::Elu(parameter) => parameter.get() >= 0.0,
            Self::Gelu | Self::GeluTanh | Self::Silu | Self::Mish => false,
        }
    }

    /// The function, in f64.
    pub(super) fn eval(self, x: f64) -> f64 {
        match self {
            Self::Relu => x.max(0.0),
            Self::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => sigmoid(x),
            Self::LeakyRelu(slope) => {
                if x > 0.0 {
                    x
                } else {
                    slope.f64() * x
                }
            }
            Self::Elu(alpha) => {
                if x > 0.0 {
                    x
                } else {
                    alpha.f64() * x.exp_m1()
                }
            }
            Self::GeluTanh => 0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044715 * x.powi(3))).tanh()),
            Self::Silu => x * sigmoid(x),
            Self::Mish => x * softplus(x).tanh(),
            Self::Softplus => softplus(x),
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
            Self::LeakyRelu(slope) => {
                if v > 0.0 {
                    1.0
                } else {
                    slope.f64()
                }
            }
            Self::Elu(_) if v > 0.0 => 1.0,
            Self::Elu(alpha) if self.grad_from_output() => v + alpha.f64(),
            Self::Elu(alpha) => alpha.f64() * v.exp(),
            Self::GeluTanh => {
                let t = (SQRT_2_OVER_PI * (v + 0.044715 * v.powi(3))).tanh();
                0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * v * v)
            }
            Self::Silu => sigmoid(v) * (1.0 + v * sigmoid(-v)),
            Self::Mish => {
                let t = softplus(v).tanh();
                t + v * (1.0 - t * t) * sigmoid(v)
            }
            Self::Softplus => -(-v).exp_m1(),
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

impl Op for Activation {
    fn name(&self) -> &'static str {
        "activation"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        Self::check(Some(*self), self.name())?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Self::define(Some(*self), Kernel::linear(shader!("activation"), 64));
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let v = if self.grad_from_output() { node.outputs[0] } else { node.inputs[0] };
        let dy = node.dy()?;
        Ok(vec![node.when(0, || emit.emit(ActivationGrad(*self), &[v, dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![Self::write(Some(*self), model, node.input(0).clone())])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].map(|x| self.eval(x))]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let mut examples: Vec<_> = Activation::cases().map(|f| Example::new(f, [&[7, 13]])).collect();
    examples.extend(Activation::cases().map(|f| Example::new(f, [&[13, 7]]).filled(Fill::Wide)));
    examples.extend([1, 63, 65].map(|n| Example::new(Activation::Relu, [&[n]])));
    examples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_stay_finite_far_out() {
        for f in Activation::cases() {
            for x in [-1e30, -800.0, 800.0, 1e30] {
                let v = if f.grad_from_output() { f.eval(x) } else { x };
                assert!(f.eval(x).is_finite(), "{f:?} of {x}");
                // In f64 the cube of 1e30 is finite, its product with 0 is 0.
                assert!(f.eval_grad(v).is_finite(), "{f:?} at {x}");
            }
        }
    }

    #[test]
    fn parameters_must_be_finite() {
        let error = Activation::Elu(f32::NAN.into()).infer(&[&TensorType::f32([2])]).unwrap_err();
        assert_eq!(error.to_string(), "activation: expected a finite alpha, got NaN");
    }
}
