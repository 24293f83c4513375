//! Product of two tensors, element by element.

use super::broadcast::{infer_binary, lower_binary, reference_binary};
use super::sum_to::sum_to;
use super::{Backward, Emit, Entry, Example, Lowering, Op, Reference, Step, Target, ValueId};
use crate::error::Result;
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "mul", examples };

/// (a, b) → a b, broadcast by NumPy's rules.
#[derive(Debug, Clone, Copy)]
pub struct Mul;

impl Op for Mul {
    fn name(&self) -> &'static str {
        "mul"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        infer_binary(self.name(), inputs)
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        lower_binary(shader!("mul"), inputs, outputs[0])
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let [a, b] = [node.inputs[0], node.inputs[1]];
        let mut gradient = |of, other| {
            let product = emit.emit(Mul, &[dy, other])?;
            sum_to(emit, product, of)
        };
        let da = node.when(0, || gradient(a, b))?;
        let db = node.when(1, || gradient(b, a))?;
        Ok(vec![da, db])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![reference_binary(inputs[0], inputs[1], |a, b| a * b)]
    }
}

fn examples() -> Vec<Example> {
    vec![
        Example::new(Mul, [&[1], &[1]]),
        Example::new(Mul, [&[65, 7], &[7]]),
        Example::new(Mul, [&[3, 5, 2, 7], &[5, 1, 1]]),
        Example::new(Mul, [&[2, 1, 63], &[3, 1]]),
        Example::new(Mul, [&[13], &[5, 1]]),
        Example::new(Mul, [&[11, 13], &[11, 13]]),
    ]
}
