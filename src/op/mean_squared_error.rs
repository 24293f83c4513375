//! Mean squared error per sample.

use super::MeanSquaredErrorGrad;
use super::prelude::*;
use super::rows::launch;

/// (prediction [N, ...], target [N, ...]) → the mean over a sample's elements of (prediction − target)², \[N\].
///
/// Unweighted: sample weights are the seed of the backward pass.
#[derive(Debug, Clone, Copy)]
pub struct MeanSquaredError;

/// Checks that two tensors have one shape with a sample dimension; returns it as samples and elements of a sample.
pub(super) fn samples(op: &str, prediction: &Shape, target: &Shape) -> Result<(usize, usize)> {
    if prediction != target {
        let message = format!("expected equal shapes, got prediction {prediction} and target {target}");
        return Err(Error::shape(op, message));
    }
    match prediction.dims() {
        [samples, features @ ..] if prediction.elements() > 0 => Ok((*samples, features.iter().product())),
        _ => Err(Error::shape(op, format!("expected samples along the first dimension, got {prediction}"))),
    }
}

impl Op for MeanSquaredError {
    fn name(&self) -> &'static str {
        "mean_squared_error"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [prediction, target] = expect_f32(self.name(), inputs)?;
        let (rows, _) = samples(self.name(), &prediction, &target)?;
        Ok(vec![TensorType::f32([rows])])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (rows, columns) = samples(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        Ok(launch(shader!("mean_squared_error"), target, rows, columns, vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let (prediction, target) = (node.inputs[0], node.inputs[1]);
        let first = node.when(0, || emit.emit(MeanSquaredErrorGrad, &[prediction, target, dy]))?;
        let second = node.when(1, || emit.emit(MeanSquaredErrorGrad, &[target, prediction, dy]))?;
        Ok(vec![first, second])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (prediction, target) = (inputs[0], inputs[1]);
        let (rows, columns) = samples(self.name(), &prediction.shape, &target.shape).expect("checked by infer");
        let squares = prediction.zip(target, |p, t| (p - t) * (p - t)).data;
        vec![Reference::from_fn([rows], |row| squares[row * columns..][..columns].iter().sum::<f64>() / columns as f64)]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let shapes: [&[usize]; 6] = [&[1], &[65], &[63, 3], &[5, 65], &[3, 7, 11], &[2, 1000]];
    shapes.map(|shape| Example::new(MeanSquaredError, [shape, shape])).into()
}
