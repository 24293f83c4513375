//! The sums that a batch norm's cotangents are made of.

use super::batch_norm::{Grouped, cases, scale};
use super::prelude::*;
use super::sum_to::{partial, summed};

/// (x, statistics, dy) → (Σ dy [G, C], Σ dy · x̂ [G, C]): over each channel of each group, x̂ being the normalised x.
/// Over all groups they are the cotangents of bias and weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormGradSums {
    /// Samples that share statistics.
    pub group: usize,
    /// Added to the variance.
    pub epsilon: f32,
}

/// Checks the number of inputs, and the first three as (x, statistics, dy).
pub(super) fn expect_inputs(op: &str, group: usize, inputs: &[&TensorType], count: usize) -> Result<Grouped> {
    expect_all_f32(op, count, inputs)?;
    let (x, statistics, dy) = (inputs[0], inputs[1], inputs[2]);
    let grouped = Grouped::new(op, &x.shape, group)?;
    expect_shape(op, "statistics", &grouped.statistics().shape, &statistics.shape)?;
    expect_equal_shapes(op, &x.shape, &dy.shape)?;
    Ok(grouped)
}

impl Op for BatchNormGradSums {
    fn name(&self) -> &'static str {
        "batch_norm_grad_sums"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let grouped = expect_inputs(self.name(), self.group, inputs, 3)?;
        Ok(vec![grouped.sums(); 2])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let grouped = Grouped::new(self.name(), &inputs[0].shape, self.group)?;
        let parts = grouped.parts();
        let operands = vec![input(0), input(1), input(2), partial(parts, 0), partial(parts, 1)];
        let mut launch = grouped.over_parts(shader!("batch_norm_grad_sums"), target, operands);
        launch.kernel = launch.kernel.constant("EPSILON", self.epsilon);
        summed(launch, 2, [parts, grouped.rows()], target)
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, statistics, dy) = (inputs[0], inputs[1], inputs[2]);
        let grouped = Grouped::new(self.name(), &x.shape, self.group).expect("checked by infer");
        let mut sums = vec![Reference::zeros(grouped.sums().shape); 2];
        for (i, (x, dy)) in x.data.iter().zip(&dy.data).enumerate() {
            let row = grouped.row(i);
            let (mean, variance) = (statistics.data[2 * row], statistics.data[2 * row + 1]);
            sums[0].data[row] += dy;
            sums[1].data[row] += dy * (x - mean) * scale(variance, self.epsilon);
        }
        sums
    }

    fn group(&self) -> usize {
        self.group
    }
}

/// An example's inputs (x, statistics, dy): statistics that some other x might have.
pub(super) fn example(op: impl Op + 'static, group: usize, x: &[usize]) -> Example {
    let grouped = Grouped::new("example", &x.to_vec().into(), group).expect("the cases fit");
    let mut example = Example::new(op, [x, grouped.statistics().shape.dims(), x]);
    example.inputs[1].1 = Fill::Positive;
    example
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(x, group): (Vec<usize>, usize)| example(BatchNormGradSums { group, epsilon: 1e-5 }, group, &x);
    cases().into_iter().map(case).collect()
}
