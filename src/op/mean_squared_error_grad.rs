//! Cotangent of mean squared error's first input.

use super::mean_squared_error::samples;
use super::prelude::*;

/// (a [N, ...], b [N, ...], dloss \[N\]) → dloss · 2 (a − b) / elements of a sample: the cotangent of a.
#[derive(Debug, Clone, Copy)]
pub struct MeanSquaredErrorGrad;

impl Op for MeanSquaredErrorGrad {
    fn name(&self) -> &'static str {
        "mean_squared_error_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [a, b, dloss] = expect_f32(self.name(), inputs)?;
        let (rows, _) = samples(self.name(), &a, &b)?;
        expect_shape(self.name(), "dloss", &[rows].into(), &dloss)?;
        Ok(vec![TensorType::f32(a)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (rows, columns) = samples(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        let kernel = Kernel::linear(shader!("mean_squared_error_grad"), 64).constant("COLUMNS", columns);
        Ok(elementwise(kernel, rows * columns, vec![input(0), input(1), input(2), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (a, b, dloss) = (inputs[0], inputs[1], inputs[2]);
        let (_, columns) = samples(self.name(), &a.shape, &b.shape).expect("checked by infer");
        vec![Reference::from_fn(a.shape.clone(), |i| {
            dloss.data[i / columns] * 2.0 * (a.data[i] - b.data[i]) / columns as f64
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let shapes: [&[usize]; 5] = [&[1], &[65], &[63, 3], &[5, 65], &[3, 7, 11]];
    shapes.map(|shape| Example::new(MeanSquaredErrorGrad, [shape, shape, &shape[..1]])).into()
}
