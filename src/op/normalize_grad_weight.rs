//! Cotangents of a normalisation's weight and bias.

use super::normalize::{Normalization, cases};
use super::normalize_grad::{example, expect_inputs};
use super::prelude::*;
use super::sum_to::{partial, summed};

/// Most terms of one partial sum: bounds its rounding error and the iterations of an invocation.
const MAX_TERMS: usize = 4096;
/// Fewest terms that are worth a partial sum.
const MIN_TERMS: usize = 64;

/// (x, statistics, dy) → dweight \[C\] = Σ dy · x̂, and with a bias dbias \[C\] = Σ dy, over all but the channels, in a
/// fixed order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormalizeGradWeight {
    /// What was normalised.
    pub kind: Normalization,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Op for NormalizeGradWeight {
    fn name(&self) -> &'static str {
        "normalize_grad_weight"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let weights = expect_inputs(self.name(), self.kind, inputs, 3)?;
        Ok(vec![TensorType::f32([weights]); 1 + usize::from(self.bias)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], target: &Target) -> Result<Lowering> {
        let rows = self.kind.rows(self.name(), &inputs[0].shape)?;
        let (channels, terms) = (rows.weights(), rows.samples * rows.span);
        // An invocation sums a part of a channel's terms; as many parts as keep the device busy.
        let busy = if target.tiling == Tiling::Registers { 1024 } else { 16_384 };
        let parts = (busy / channels).min(terms / MIN_TERMS).max(terms.div_ceil(MAX_TERMS)).max(1);
        let chunk = terms.div_ceil(parts);
        let parts = terms.div_ceil(chunk);
        let kernel = rows
            .constants(Kernel::linear(shader!("normalize_grad_weight"), 64))
            .size("terms", terms)
            .size("chunk", chunk)
            .define_if(self.bias, "BIAS");
        let mut operands = vec![input(0), input(1), input(2)];
        operands.extend((0..outputs.len()).map(|index| partial(parts, index)));
        summed(elementwise(kernel, channels * parts, operands), outputs.len(), [parts, channels], target)
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, statistics, dy) = (inputs[0], inputs[1], inputs[2]);
        let rows = self.kind.rows(self.name(), &x.shape).expect("checked by infer");
        let mut sums = vec![Reference::zeros([rows.weights()]); 1 + usize::from(self.bias)];
        for (i, (x, dy)) in x.data.iter().zip(&dy.data).enumerate() {
            let row = i / rows.columns();
            let hat = (x - statistics.data[2 * row]) * statistics.data[2 * row + 1];
            for (sum, factor) in sums.iter_mut().zip([hat, 1.0]) {
                sum.data[rows.channel(i)] += dy * factor;
            }
        }
        sums
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(kind, x, _): (Normalization, Vec<usize>, usize)| {
        example(NormalizeGradWeight { kind, bias: kind != Normalization::Rms }, kind, &x)
    };
    cases().into_iter().map(case).collect()
}
