//! Cotangent of a normalisation's input.

use super::normalize::{Normalization, cases};
use super::prelude::*;
use super::rows::launch;

/// (x, statistics, dy), and the weight where there is one → dx.
///
/// With g = dy · weight and x̂ the normalised x: dx = (g − mean g − x̂ · mean(g x̂)) / deviation, the means along a
/// row; RMS norm has no mean g.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormalizeGrad {
    /// What was normalised.
    pub kind: Normalization,
    /// Whether there is a weight.
    pub weight: bool,
}

/// Checks (x, statistics, dy) for this op and the weight's.
pub(super) fn expect_inputs(op: &str, kind: Normalization, inputs: &[&TensorType], count: usize) -> Result<usize> {
    expect_all_f32(op, count, inputs)?;
    let (x, statistics, dy) = (inputs[0], inputs[1], inputs[2]);
    let rows = kind.rows(op, &x.shape)?;
    expect_shape(op, "statistics", &rows.statistics().shape, &statistics.shape)?;
    expect_shape(op, "dy", &x.shape, &dy.shape)?;
    Ok(rows.weights())
}

impl Op for NormalizeGrad {
    fn name(&self) -> &'static str {
        "normalize_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let weights = expect_inputs(self.name(), self.kind, inputs, 3 + usize::from(self.weight))?;
        if self.weight {
            expect_shape(self.name(), "a weight", &[weights].into(), &inputs[3].shape)?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let rows = self.kind.rows(self.name(), &inputs[0].shape)?;
        let mut operands = vec![input(0), input(1), input(2), output(0)];
        operands.extend(self.weight.then(|| input(3)));
        let mut launch = launch(shader!("normalize_grad"), target, rows.count(), rows.columns(), operands);
        launch.kernel = rows
            .constants(launch.kernel)
            .define_if(self.kind == Normalization::Rms, "RMS")
            .define_if(self.weight, "WEIGHT");
        Ok(launch.into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, statistics, dy) = (inputs[0], inputs[1], inputs[2]);
        let rows = self.kind.rows(self.name(), &x.shape).expect("checked by infer");
        let columns = rows.columns();
        let mut dx = Reference::zeros(x.shape.clone());
        for (row, dx) in dx.data.chunks_mut(columns).enumerate() {
            let base = row * columns;
            let (mean, scale) = (statistics.data[2 * row], statistics.data[2 * row + 1]);
            let weight = |c: usize| if self.weight { inputs[3].data[rows.channel(base + c)] } else { 1.0 };
            let g: Vec<f64> = (0..columns).map(|c| dy.data[base + c] * weight(c)).collect();
            let hat: Vec<f64> = (0..columns).map(|c| (x.data[base + c] - mean) * scale).collect();
            let of_g = if self.kind == Normalization::Rms { 0.0 } else { g.iter().sum::<f64>() / columns as f64 };
            let of_both = g.iter().zip(&hat).map(|(g, h)| g * h).sum::<f64>() / columns as f64;
            for (c, dx) in dx.iter_mut().enumerate() {
                *dx = scale * (g[c] - of_g - hat[c] * of_both);
            }
        }
        vec![dx]
    }
}

/// An example's inputs (x, statistics, dy): statistics that some other x might have.
pub(super) fn example(op: impl Op + 'static, kind: Normalization, x: &[usize]) -> Example {
    let rows = kind.rows("example", &x.to_vec().into()).expect("the cases fit");
    let mut example = Example::new(op, [x, &[rows.count(), 2], x]);
    example.inputs[1].1 = Fill::Positive;
    example
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(kind, x, channels): (Normalization, Vec<usize>, usize)| {
        let mut example = example(NormalizeGrad { kind, weight: true }, kind, &x);
        example.inputs.push((TensorType::f32([channels]), Fill::Normal));
        example
    };
    let plain = NormalizeGrad { kind: Normalization::Layer, weight: false };
    cases().into_iter().map(case).chain([example(plain, plain.kind, &[5, 31])]).collect()
}
