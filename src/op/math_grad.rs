//! Cotangent of an elementwise function's input.

use super::Math;
use super::prelude::*;

/// (v, dy) → dy f′(v), elementwise; v is the output of exp, sqrt and reciprocal, the input of the others.
#[derive(Debug, Clone, Copy)]
pub struct MathGrad(pub Math);

impl Op for MathGrad {
    fn name(&self) -> &'static str {
        "math_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [v, dy] = expect_f32(self.name(), inputs)?;
        expect_equal_shapes(self.name(), &v, &dy)?;
        self.0.check(self.name())?;
        Ok(vec![TensorType::f32(v)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = self.0.define_grad(Kernel::linear(shader!("math_grad"), 64));
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].zip(inputs[1], |v, dy| dy * self.0.eval_grad(v))]
    }
}

pub(super) fn examples() -> Vec<Example> {
    // Those whose backward rule takes this op.
    let all = Math::cases().into_iter().filter(|(f, _)| !matches!(f, Math::Neg | Math::Scale(_) | Math::Offset(_)));
    let all = all.map(|(f, fill)| Example::new(MathGrad(f), [&[5, 13], &[5, 13]]).filled(fill));
    let edges = [Math::Abs, Math::Clamp((-1.0).into(), 1.0.into()), Math::Pow(2.0.into()), Math::Pow(18.0.into())];
    all.chain(edges.map(|f| Example::new(MathGrad(f), [&[41], &[41]]).filled(Fill::Whole))).collect()
}
