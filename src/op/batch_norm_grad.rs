//! Cotangent of a batch norm's input.

use super::batch_norm::{Grouped, cases, scale};
use super::batch_norm_grad_sums::{example, expect_inputs};
use super::prelude::*;

/// (x, statistics, dy, Σ dy, Σ dy · x̂), the sums as [`super::BatchNormGradSums`] gives them, and the weight where it
/// is affine → dx.
///
/// With x̂ the normalised x and n the valid elements of a channel in the group: dx = weight · (dy − (Σ dy + x̂ · Σ dy ·
/// x̂) / n) / deviation. Padding is in no statistics: there it is weight · dy / deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormGrad {
    /// Samples that share statistics.
    pub group: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there is a weight.
    pub affine: bool,
}

impl Op for BatchNormGrad {
    fn name(&self) -> &'static str {
        "batch_norm_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let grouped = expect_inputs(self.name(), self.group, inputs, 5 + usize::from(self.affine))?;
        let weight = TensorType::f32([grouped.channels]);
        for (ty, expected) in inputs[3..].iter().zip([grouped.sums(), grouped.sums(), weight]) {
            expect_shape(self.name(), "sums or a weight", &expected.shape, &ty.shape)?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let grouped = Grouped::new(self.name(), &inputs[0].shape, self.group)?;
        let kernel = grouped
            .constants(Kernel::linear(shader!("batch_norm_grad"), 64))
            .constant("EPSILON", self.epsilon)
            .define_if(self.affine, "AFFINE");
        let mut operands: Vec<_> = (0..5).map(input).collect();
        operands.push(output(0));
        operands.extend(self.affine.then(|| input(5)));
        Ok(elementwise(kernel, inputs[0].shape.elements(), operands).into())
    }

    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference> {
        let [x, statistics, dy, of_dy, of_both] = [0, 1, 2, 3, 4].map(|i| inputs[i]);
        let grouped = Grouped::new(self.name(), &x.shape, self.group).expect("checked by infer");
        vec![Reference::from_fn(x.shape.clone(), |i| {
            let row = grouped.row(i);
            let deviation = scale(statistics.data[2 * row + 1], self.epsilon);
            let hat = (x.data[i] - statistics.data[2 * row]) * deviation;
            let mean = (of_dy.data[row] + hat * of_both.data[row]) / grouped.valid(row, step) as f64;
            let padding = grouped.sample(i) >= step.valid as usize;
            let weight = if self.affine { inputs[5].data[row % grouped.channels] } else { 1.0 };
            weight * deviation * if padding { dy.data[i] } else { dy.data[i] - mean }
        })]
    }

    fn group(&self) -> usize {
        self.group
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(x, group): (Vec<usize>, usize), affine| {
        let grouped = Grouped::new("example", &x.clone().into(), group).expect("the cases fit");
        let mut example = example(BatchNormGrad { group, epsilon: 1e-5, affine }, group, &x);
        let more = [grouped.sums(), grouped.sums(), TensorType::f32([grouped.channels])];
        example.inputs.extend(more.into_iter().take(2 + usize::from(affine)).map(|ty| (ty, Fill::Normal)));
        example
    };
    let plain = case((vec![7, 31], 3), false);
    cases().into_iter().map(|x| case(x, true)).chain([plain]).collect()
}
