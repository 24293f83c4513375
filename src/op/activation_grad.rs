//! Cotangent of an activation's input.

use super::kernel::{elementwise, input, output};
use super::{
    Activation, Backward, Emit, Entry, Example, Kernel, Lowering, Op, Reference, Step, Target, ValueId, expect_f32,
};
use crate::error::{Error, Result};
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "activation_grad", examples };

/// (v, dy) → dy f′(v), elementwise; v is f's input for GELU and its output for the others.
#[derive(Debug, Clone, Copy)]
pub struct ActivationGrad(pub Activation);

impl Op for ActivationGrad {
    fn name(&self) -> &'static str {
        "activation_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [v, dy] = expect_f32(self.name(), inputs)?;
        if v != dy {
            return Err(Error::shape(self.name(), format!("expected equal shapes, got {v} and {dy}")));
        }
        Ok(vec![TensorType::f32(v)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("activation_grad"), 64).define(self.0.definition());
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Err(Error::no_second_derivative(self.name()))
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].zip(inputs[1], |v, dy| dy * self.0.eval_grad(v))]
    }
}

fn examples() -> Vec<Example> {
    Activation::ALL.map(|f| Example::new(ActivationGrad(f), [&[5, 13], &[5, 13]])).into()
}
