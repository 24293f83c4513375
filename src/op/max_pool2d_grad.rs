//! Cotangent of a maximum pool's input.

use super::max_pool2d::winners;
use super::window::{Pool, planes};
use super::{Backward, Emit, Entry, Example, Op, Reference, ValueId, expect_f32};
use crate::error::{Error, Result};
use crate::kernel::shader::shader;
use crate::kernel::{Kernel, Lowering, Step, Target};
use crate::kernel::{elementwise, input, output};
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "max_pool2d_grad", examples };

/// (x, dy) → dx: each window's dy goes to its winner, the first maximum (or first NaN) in row-major order.
#[derive(Debug, Clone, Copy)]
pub struct MaxPool2dGrad(pub Pool);

impl Op for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, dy] = expect_f32(self.name(), inputs)?;
        let expected = self.0.output(self.name(), &x)?;
        if dy != expected {
            return Err(Error::shape(self.name(), format!("expected dy {expected}, got {dy}")));
        }
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let [_, _, h, w] = planes(self.name(), "input", &inputs[0].shape)?;
        let [_, _, oh, ow] = planes(self.name(), "dy", &inputs[1].shape)?;
        let kernel = self.0.window().constants(Kernel::linear(shader!("max_pool2d_grad"), 64), [h, w], [oh, ow]);
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Err(Error::no_second_derivative(self.name()))
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, dy) = (inputs[0], inputs[1]);
        let mut dx = Reference::zeros(x.shape.clone());
        for (winner, dy) in winners(&self.0.window(), x).into_iter().zip(&dy.data) {
            dx.data[winner] += dy;
        }
        vec![dx]
    }
}

fn examples() -> Vec<Example> {
    let case = |(pool, x): (Pool, [usize; 4])| {
        let dy = pool.output("example", &x.into()).expect("the cases fit");
        Example::new(MaxPool2dGrad(pool), [&x, dy.dims()])
    };
    Pool::cases().into_iter().map(case).collect()
}
