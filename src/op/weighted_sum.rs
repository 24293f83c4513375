//! Sum of per-sample values times their weights: how losses and metrics leave a micro-batch.

use super::prelude::*;

/// (values, weights), of one shape → \[1\], Σ vᵢwᵢ in a fixed order.
///
/// A term of weight 0 counts as 0 whatever its value: the rows that pad a micro-batch may hold anything.
#[derive(Debug, Clone, Copy)]
pub struct WeightedSum;

impl Op for WeightedSum {
    fn name(&self) -> &'static str {
        "weighted_sum"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [values, weights] = expect_f32(self.name(), inputs)?;
        if values != weights {
            let message = format!("expected a weight for each value, got values {values} and weights {weights}");
            return Err(Error::shape(self.name(), message));
        }
        Ok(vec![TensorType::f32([1])])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("weighted_sum"), 256);
        let kernel = kernel.size("rows", 1).size("terms", inputs[0].shape.elements());
        Ok(Launch::new(kernel, vec![input(0), input(1), output(0)], 1).adding().into())
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Err(Error::shape(self.name(), "has no backward rule: sample weights are the seed of the backward pass"))
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let terms = inputs[0].data.iter().zip(&inputs[1].data);
        let sum = terms.filter(|(_, w)| **w != 0.0).map(|(v, w)| v * w).sum();
        vec![Reference { shape: [1].into(), data: vec![sum] }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |shape: &[usize]| Example::new(WeightedSum, [shape, shape]);
    vec![case(&[1]), case(&[63]), case(&[257]), case(&[7, 149])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_count() {
        let of = |data: &[f64]| Reference { shape: [data.len()].into(), data: data.to_vec() };
        let sum = WeightedSum.reference(&[&of(&[2.0, f64::NAN]), &of(&[3.0, 0.0])], &Step::default());
        assert_eq!(sum[0].data, [6.0]);
    }
}
