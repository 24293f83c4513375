//! Cotangent of a mean pool's input.

use super::window::planes;
use super::{AvgPool2d, Backward, Emit, Entry, Example, Op, Reference, ValueId, expect_f32};
use crate::error::{Error, Result};
use crate::kernel::shader::shader;
use crate::kernel::{Kernel, Lowering, Step, Target};
use crate::kernel::{elementwise, input, output};
use crate::tensor::{Shape, TensorType};

/// Table line.
pub const ENTRY: Entry = Entry { name: "avg_pool2d_grad", examples };

/// dy → dx: each window's dy, divided as in the forward pass, goes to all its pixels.
#[derive(Debug, Clone)]
pub struct AvgPool2dGrad {
    /// The pool.
    pub pool: AvgPool2d,
    /// Shape of x, which dy's does not determine.
    pub input: Shape,
}

impl Op for AvgPool2dGrad {
    fn name(&self) -> &'static str {
        "avg_pool2d_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [dy] = expect_f32(self.name(), inputs)?;
        let expected = self.pool.pool.output(self.name(), &self.input)?;
        if dy != expected {
            return Err(Error::shape(self.name(), format!("expected dy {expected}, got {dy}")));
        }
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let [_, _, h, w] = planes(self.name(), "input", &self.input)?;
        let [_, _, oh, ow] = planes(self.name(), "dy", &inputs[0].shape)?;
        let kernel = self.pool.constants(Kernel::linear(shader!("avg_pool2d_grad"), 64), [h, w], [oh, ow]);
        Ok(elementwise(kernel, self.input.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Err(Error::no_second_derivative(self.name()))
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let mut dx = Reference::zeros(self.input.clone());
        for (window, dy) in self.pool.pool.window().positions(&self.input).zip(&inputs[0].data) {
            for &i in &window {
                dx.data[i] += dy / self.pool.divisor(window.len());
            }
        }
        vec![dx]
    }
}

fn examples() -> Vec<Example> {
    let case = |(pool, x): (AvgPool2d, [usize; 4])| {
        let dy = pool.pool.output("example", &x.into()).expect("the cases fit");
        Example::new(AvgPool2dGrad { pool, input: x.into() }, [dy.dims()])
    };
    AvgPool2d::cases().into_iter().map(case).collect()
}
