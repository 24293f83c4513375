//! Dropout (Srivastava et al., JMLR 2014), inverted: what is kept is scaled, so that inference needs nothing.

use super::prelude::*;
use crate::rng::threefry2x32;

/// x [N, ...] → x / (1 − p) where an element is kept, and 0 where it is dropped, with probability p.
///
/// Whether an element is dropped depends on the run's seed, the optimizer step, the site, the sample's position in the
/// global batch and the element's within the sample, and on nothing else: a mask survives any split of the batch.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    /// p, in [0, 1).
    pub probability: f32,
    /// Which dropout of the model this is: equal sites have equal masks.
    pub site: u32,
}

impl Dropout {
    /// Random words below this are dropped.
    fn threshold(&self) -> u32 {
        (f64::from(self.probability) * 4_294_967_296.0) as u32
    }

    /// What a kept element is multiplied by.
    fn scale(&self) -> f32 {
        1.0 / (1.0 - self.probability)
    }

    /// Samples and elements of a sample.
    fn samples(x: &Shape) -> (usize, usize) {
        (x[0], x.dims()[1..].iter().product())
    }
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        if !(0.0..1.0).contains(&self.probability) {
            let message = format!("expected a probability of at least 0 and below 1, got {}", self.probability);
            return Err(Error::shape(self.name(), message));
        }
        let [x] = expect_f32(self.name(), inputs)?;
        if x.rank() == 0 || x.elements() == 0 {
            return Err(Error::shape(self.name(), format!("expected samples along the first dimension, got {x}")));
        }
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (rows, columns) = Self::samples(&inputs[0].shape);
        let kernel = Kernel::linear(shader!("dropout"), 64)
            .constant("COLUMNS", columns)
            // Any u32, where sizes are small: by halves.
            .size("site_high", (self.site >> 16) as usize)
            .size("site_low", (self.site & 0xffff) as usize)
            .constant("THRESHOLD", self.threshold())
            .constant("SCALE", self.scale());
        Ok(elementwise(kernel, rows * columns, vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        Ok(vec![node.when(0, || emit.emit(*self, &[dy]))?])
    }

    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let (_, columns) = Self::samples(&x.shape);
        let key = threefry2x32(step.seed, [step.step, self.site]);
        vec![Reference::from_fn(x.shape.clone(), |i| {
            let row = step.first_row.wrapping_add((i / columns) as u32);
            let kept = threefry2x32(key, [row, (i % columns) as u32])[0] >= self.threshold();
            if kept { x.data[i] * f64::from(self.scale()) } else { 0.0 }
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |probability, site, shape: &[usize]| Example::new(Dropout { probability, site }, [shape]);
    vec![
        case(0.5, 0, &[1]),
        case(0.1, 1, &[63, 65]),
        case(0.9, 2, &[5, 7, 3]),
        case(0.0, 3, &[65]),
        case(0.3, 0x8593_f1b0, &[7, 9]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(op: Dropout, rows: usize, step: Step) -> Vec<f64> {
        op.reference(&[&Reference::from_fn([rows, 50], |_| 1.0)], &step).remove(0).data
    }

    #[test]
    fn a_mask_survives_a_split_of_the_batch() {
        let op = Dropout { probability: 0.3, site: 2 };
        let step = Step { seed: [1, 2], step: 9, ..Step::default() };
        let whole = mask(op, 8, step);
        assert_eq!(mask(op, 5, Step { first_row: 3, ..step }), whole[3 * 50..]);
        assert_ne!(mask(op, 8, Step { step: 10, ..step }), whole);
        assert_ne!(mask(op, 8, Step { seed: [1, 3], ..step }), whole);
        assert_ne!(mask(Dropout { site: 3, ..op }, 8, step), whole);
    }

    #[test]
    fn the_mean_is_kept() {
        let data = mask(Dropout { probability: 0.3, site: 0 }, 1000, Step::default());
        let dropped = data.iter().filter(|x| **x == 0.0).count() as f64 / data.len() as f64;
        assert!((dropped - 0.3).abs() < 0.01, "{dropped} dropped");
        let mean = data.iter().sum::<f64>() / data.len() as f64;
        assert!((mean - 1.0).abs() < 0.015, "mean {mean}");
    }

    #[test]
    fn zero_keeps_all_and_one_is_refused() {
        assert_eq!(mask(Dropout { probability: 0.0, site: 0 }, 3, Step::default()), [1.0; 150]);
        for probability in [1.0, -0.1, f32::NAN] {
            let error = Dropout { probability, site: 0 }.infer(&[&TensorType::f32([2, 2])]).unwrap_err();
            assert!(error.to_string().starts_with("dropout: expected a probability"), "{error}");
        }
    }
}
