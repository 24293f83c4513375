//! Sum of two tensors.

use super::broadcast::{infer_binary, lower_binary, reference_binary};
use super::sum_to::sum_to;
use super::{Backward, Emit, Entry, Example, Lowering, Op, Reference, Step, Target, ValueId};
use crate::error::Result;
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "add", examples };

/// (a, b) → a + b, broadcast by NumPy's rules.
#[derive(Debug, Clone, Copy)]
pub struct Add;

impl Op for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        infer_binary(self.name(), inputs)
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        lower_binary(shader!("add"), inputs, outputs[0])
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let da = node.when(0, || sum_to(emit, dy, node.inputs[0]))?;
        let db = node.when(1, || sum_to(emit, dy, node.inputs[1]))?;
        Ok(vec![da, db])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![reference_binary(inputs[0], inputs[1], |a, b| a + b)]
    }
}

fn examples() -> Vec<Example> {
    vec![
        Example::new(Add, [&[1], &[1]]),
        Example::new(Add, [&[65, 7], &[7]]),
        Example::new(Add, [&[3, 5, 2, 7], &[5, 1, 1]]),
        Example::new(Add, [&[2, 1, 63], &[3, 1]]),
        Example::new(Add, [&[13], &[5, 1]]),
        Example::new(Add, [&[11, 13], &[11, 13]]),
    ]
}
