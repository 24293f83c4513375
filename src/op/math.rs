//! Elementwise functions of one tensor.

use super::MathGrad;
use super::prelude::*;

/// x → f(x), elementwise. Gradients are PyTorch's where f has a kink or a pole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Math {
    /// exp(x)
    Exp,
    /// ln(x)
    Log,
    /// √x; its derivative at 0 is infinite.
    Sqrt,
    /// |x|; its derivative at 0 is 0.
    Abs,
    /// −x
    Neg,
    /// x²
    Square,
    /// 1 / x
    Reciprocal,
    /// x to this power; of a negative x only to whole ones. 0⁰ is 1.
    Pow(Scalar),
    /// x, but at least the first and at most the second bound; the derivative at both is 1. A NaN may become a bound.
    Clamp(Scalar, Scalar),
    /// x times this.
    Scale(Scalar),
    /// x plus this.
    Offset(Scalar),
}

/// Largest whole power that is computed by multiplication.
const MAX_FACTORS: f64 = 16.0;

impl Math {
    /// The definition that selects it in `shaders/math.wgsl`.
    fn definition(self) -> &'static str {
        match self {
            Self::Exp => "EXP",
            Self::Log => "LOG",
            Self::Sqrt => "SQRT",
            Self::Abs => "ABS",
            Self::Neg => "NEG",
            Self::Square => "SQUARE",
            Self::Reciprocal => "RECIPROCAL",
            Self::Pow(_) => "POW",
            Self::Clamp(..) => "CLAMP",
            Self::Scale(_) => "SCALE",
            Self::Offset(_) => "OFFSET",
        }
    }

    /// Checks the parameters.
    pub(super) fn check(self, op: &str) -> Result<()> {
        match self {
            Self::Pow(c) => c.check(op, "exponent"),
            Self::Scale(c) => c.check(op, "factor"),
            Self::Offset(c) => c.check(op, "offset"),
            Self::Clamp(low, high) => {
                low.check(op, "lower bound")?;
                high.check(op, "upper bound")?;
                if low.get() <= high.get() {
                    return Ok(());
                }
                let message = format!("expected a lower bound up to the upper one, got {low:?} and {high:?}");
                Err(Error::shape(op, message))
            }
            _ => Ok(()),
        }
    }

    /// `kernel`, which imports `math`, with this function.
    pub(super) fn define(self, kernel: Kernel) -> Kernel {
        let kernel = kernel.define(self.definition());
        match self {
            Self::Pow(c) => power(kernel, c),
            Self::Clamp(low, high) => kernel.constant("LOW", low).constant("HIGH", high),
            Self::Scale(c) | Self::Offset(c) => kernel.constant("BY", c),
            _ => kernel,
        }
    }

    /// `kernel`, which imports `math_grad`'s pieces, with this function's derivative.
    pub(super) fn define_grad(self, kernel: Kernel) -> Kernel {
        match self {
            // 0 times x to the 0th, which is finite, where f is constant.
            Self::Pow(c) if c.get() == 0.0 => power(kernel.define(self.definition()), c).constant("BY", c),
            Self::Pow(c) => power(kernel.define(self.definition()), less_one(c)).constant("BY", c),
            _ => self.define(kernel),
        }
    }

    /// Whether the derivative is computed from the output.
    pub(super) fn grad_from_output(self) -> bool {
        matches!(self, Self::Exp | Self::Sqrt | Self::Reciprocal)
    }

    fn eval(self, x: f64) -> f64 {
        match self {
            Self::Exp => x.exp(),
            Self::Log => x.ln(),
            Self::Sqrt => x.sqrt(),
            Self::Abs => x.abs(),
            Self::Neg => -x,
            Self::Square => x * x,
            Self::Reciprocal => 1.0 / x,
            Self::Pow(c) => x.powf(c.f64()),
            Self::Clamp(low, high) => x.clamp(low.f64(), high.f64()),
            Self::Scale(c) => x * c.f64(),
            Self::Offset(c) => x + c.f64(),
        }
    }

    /// The derivative in f64, from the input or the output as [`Math::grad_from_output`] says.
    pub(super) fn eval_grad(self, v: f64) -> f64 {
        match self {
            Self::Exp => v,
            Self::Log => 1.0 / v,
            Self::Sqrt => 0.5 / v,
            Self::Abs if v == 0.0 => 0.0,
            Self::Abs => v.signum(),
            Self::Neg => -1.0,
            Self::Square => 2.0 * v,
            Self::Reciprocal => -v * v,
            Self::Pow(c) if c.get() == 0.0 => 0.0,
            Self::Pow(c) => c.f64() * v.powf(less_one(c).f64()),
            Self::Clamp(low, high) => f64::from(low.f64() <= v && v <= high.f64()),
            Self::Scale(c) => c.f64(),
            Self::Offset(_) => 1.0,
        }
    }

    /// Every function, with parameters for every branch of the shader, and what fills its inputs.
    pub(super) fn cases() -> Vec<(Self, Fill)> {
        let pow = |c: f32| Self::Pow(c.into());
        let clamp = |low: f32, high: f32| Self::Clamp(low.into(), high.into());
        let anywhere = [Self::Exp, Self::Abs, Self::Neg, Self::Square, clamp(-0.5, 1.0), clamp(0.25, 0.25)];
        let powers = [0.0, 1.0, 2.0, 3.0, 16.0].map(pow);
        let linear = [Self::Scale(0.3.into()), Self::Scale((-7.0).into()), Self::Offset(0.7.into())];
        let positive = [Self::Log, Self::Sqrt, Self::Reciprocal];
        let roots = [0.5, -0.5, 2.7, -3.0, -1.0, 19.0, -20.0].map(pow);
        let normal = anywhere.into_iter().chain(powers).chain(linear).map(|f| (f, Fill::Normal));
        normal.chain(positive.into_iter().chain(roots).map(|f| (f, Fill::Positive))).collect()
    }
}

fn less_one(c: Scalar) -> Scalar {
    Scalar::new(c.get() - 1.0)
}

/// The constants of `shaders/shared/power.wgsl` for this exponent.
fn power(kernel: Kernel, exponent: Scalar) -> Kernel {
    let c = exponent.f64();
    let kernel = kernel.constant("EXPONENT", exponent);
    match c.fract() == 0.0 {
        true if c.abs() <= MAX_FACTORS => kernel.define("FACTORS").constant("FACTOR_COUNT", c.abs() as u32),
        true => kernel.define(if c % 2.0 == 0.0 { "EVEN" } else { "ODD" }),
        false => kernel,
    }
}

impl Op for Math {
    fn name(&self) -> &'static str {
        "math"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        self.check(self.name())?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = self.define(Kernel::linear(shader!("math"), 64));
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let v = if self.grad_from_output() { node.outputs[0] } else { node.inputs[0] };
        let dx = node.when(0, || match self {
            Self::Offset(_) => Ok(dy),
            Self::Neg | Self::Scale(_) => emit.emit(*self, &[dy]),
            _ => emit.emit(MathGrad(*self), &[v, dy]),
        })?;
        Ok(vec![dx])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let x = node.input(0);
        Ok(vec![match self {
            Self::Exp => model.unary("Exp", x),
            Self::Log => model.unary("Log", x),
            Self::Sqrt => model.unary("Sqrt", x),
            Self::Abs => model.unary("Abs", x),
            Self::Neg => model.unary("Neg", x),
            Self::Square => model.binary("Mul", x, x),
            Self::Reciprocal => model.unary("Reciprocal", x),
            Self::Pow(exponent) => model.with_number("Pow", x, exponent.get()),
            Self::Clamp(low, high) => {
                let [low, high] = [low, high].map(|bound| model.number(bound.get()));
                model.node("Clip", &[x, &low, &high], &[])
            }
            Self::Scale(factor) => model.with_number("Mul", x, factor.get()),
            Self::Offset(offset) => model.with_number("Add", x, offset.get()),
        }])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].map(|x| self.eval(x))]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let all = Math::cases().into_iter().map(|(f, fill)| Example::new(f, [&[7, 13]]).filled(fill));
    // Zeros and negative values where whole powers, kinks and bounds meet them.
    let whole = [Math::Neg, Math::Square, Math::Pow(3.0.into()), Math::Pow(17.0.into()), Math::Pow(1.5.into())];
    let whole =
        whole.map(|f| Example::new(f, [&[31]]).filled(if f == whole[4] { Fill::Positive } else { Fill::Whole }));
    let sizes = [1, 63, 65].map(|n| Example::new(Math::Abs, [&[n]]));
    all.chain(whole).chain(sizes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinks_and_poles_are_pytorchs() {
        let clamp = Math::Clamp((-1.0).into(), 2.0.into());
        assert_eq!([-1.1, -1.0, 2.0, 2.1].map(|x| clamp.eval_grad(x)), [0.0, 1.0, 1.0, 0.0]);
        assert_eq!(Math::Abs.eval_grad(0.0), 0.0);
        assert_eq!(Math::Sqrt.eval_grad(0.0), f64::INFINITY);
        assert_eq!((Math::Pow(0.0.into()).eval(0.0), Math::Pow(0.0.into()).eval_grad(0.0)), (1.0, 0.0));
    }

    #[test]
    fn parameters_are_checked() {
        let error = |f: Math| f.infer(&[&TensorType::f32([2])]).unwrap_err().to_string();
        assert_eq!(error(Math::Pow(f32::INFINITY.into())), "math: expected a finite exponent, got inf");
        let message = "math: expected a lower bound up to the upper one, got 2.0 and 1.0";
        assert_eq!(error(Math::Clamp(2.0.into(), 1.0.into())), message);
    }
}
