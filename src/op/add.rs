//! Sum of two tensors.

use super::broadcast::{Walk, broadcast};
use super::kernel::{elementwise, input, output};
use super::sum_to::sum_to;
use super::{Backward, Emit, Entry, Example, Kernel, Lowering, Op, Reference, Step, Target, ValueId, expect_f32};
use crate::error::Result;
use crate::shader;
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
        let [a, b] = expect_f32(self.name(), inputs)?;
        let shape = broadcast(self.name(), &a, &b)?;
        Walk::new(self.name(), &shape, [&a, &b])?;
        Ok(vec![TensorType::f32(shape)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let shape = &outputs[0].shape;
        let walk = Walk::new(self.name(), shape, [&inputs[0].shape, &inputs[1].shape])?;
        let kernel = walk.constants(
            Kernel::linear(shader!("add"), 64),
            ["D0", "D1", "D2", "D3"],
            [["A0", "A1", "A2", "A3"], ["B0", "B1", "B2", "B3"]],
        );
        Ok(elementwise(kernel, shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let da = node.when(0, || sum_to(emit, dy, node.inputs[0]))?;
        let db = node.when(1, || sum_to(emit, dy, node.inputs[1]))?;
        Ok(vec![da, db])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (a, b) = (inputs[0], inputs[1]);
        let shape = broadcast(self.name(), &a.shape, &b.shape).expect("checked by infer");
        let walk = Walk::new(self.name(), &shape, [&a.shape, &b.shape]).expect("checked by infer");
        let data = walk.positions().map(|[i, j]| a.data[i] + b.data[j]).collect();
        vec![Reference { shape, data }]
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
