//! Cotangent of an activation's input.

use super::Activation;
use super::prelude::*;

/// (v, dy) → dy f′(v), elementwise; v is f's output where [`Activation::grad_from_output`] says so, else its input.
#[derive(Debug, Clone, Copy)]
pub struct ActivationGrad(pub Activation);

impl Op for ActivationGrad {
    fn name(&self) -> &'static str {
        "activation_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [v, dy] = expect_f32(self.name(), inputs)?;
        Activation::check(Some(self.0), self.name())?;
        expect_equal_shapes(self.name(), &v, &dy)?;
        Ok(vec![TensorType::f32(v)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Activation::define(Some(self.0), Kernel::linear(shader!("activation_grad"), 64));
        let kernel = kernel.define_if(self.0.grad_from_output(), "FROM_OUTPUT");
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].zip(inputs[1], |v, dy| dy * self.0.eval_grad(v))]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let near = Activation::cases().map(|f| Example::new(ActivationGrad(f), [&[5, 13], &[5, 13]]));
    // Outputs lie in the function's range: for the others, any value will do.
    let far = Activation::cases().filter(|f| !f.grad_from_output());
    let far = far.map(|f| {
        let mut example = Example::new(ActivationGrad(f), [&[13, 5], &[13, 5]]);
        example.inputs[0].1 = Fill::Wide;
        example
    });
    near.chain(far).collect()
}
