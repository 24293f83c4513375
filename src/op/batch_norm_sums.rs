//! What running statistics are updated from: a batch norm's statistics, pooled over the groups of a micro-batch.

use super::prelude::*;
use super::rows::launch;

/// (statistics [G, C, 2], running mean r \[C\]) → (n \[1\], Σ(x − r) \[C\], Σ(x − x̄)² \[C\]) over the valid elements
/// of each channel, n their number, x̄ their mean; [`super::BatchNorm`] gives the statistics.
///
/// Merged over all groups of a step, however it was divided, they give the mean and variance of all its elements
/// together: groups [0, 0] and [3, 3, 3, 3] the mean 2 and the variance 2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormSums {
    /// Samples of a group.
    pub group: usize,
    /// Elements of a channel in a sample.
    pub span: usize,
}

impl Op for BatchNormSums {
    fn name(&self) -> &'static str {
        "batch_norm_sums"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [statistics, mean] = expect_f32(self.name(), inputs)?;
        match (statistics.dims(), mean.dims()) {
            ([groups, channels, 2], [same]) if channels == same && groups * channels > 0 => {
                let sums = TensorType::f32([*channels]);
                Ok(vec![TensorType::f32([1]), sums.clone(), sums])
            }
            _ => {
                let message = format!("expected statistics [G, C, 2] and a mean [C], got {statistics} and {mean}");
                Err(Error::shape(self.name(), message))
            }
        }
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (groups, channels) = (inputs[0].shape[0], inputs[0].shape[1]);
        let operands = vec![input(0), input(1), output(0), output(1), output(2)];
        // How many groups there are follows the number of samples: the kernel is not to depend on it, but where one
        // invocation cannot walk them all (older lavapipe ends a loop after 65,535 iterations).
        let columns = if groups > 32_768 { 2048 } else { 64 };
        let mut launch = launch(shader!("batch_norm_sums"), target, channels, columns, operands);
        launch.kernel = launch
            .kernel
            .size("groups", groups)
            .constant("GROUP", self.group.min(u32::MAX as usize))
            .constant("CHANNELS", channels)
            .constant("SPAN", self.span);
        Ok(launch.into())
    }

    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference> {
        let (statistics, running) = (inputs[0], inputs[1]);
        let channels = running.data.len();
        let mut sums = [Reference::zeros([1]), Reference::zeros([channels]), Reference::zeros([channels])];
        let elements = |row: usize| {
            let samples = (step.valid as usize).saturating_sub(row / channels * self.group).min(self.group);
            (samples * self.span) as f64
        };
        let shift = |row: usize| statistics.data[2 * row] - running.data[row % channels];
        let rows = statistics.data.len() / 2;
        sums[0].data[0] = (0..rows).step_by(channels).map(elements).sum();
        for row in 0..rows {
            sums[1].data[row % channels] += elements(row) * shift(row);
        }
        for row in 0..rows {
            let d = shift(row) - sums[1].data[row % channels] / sums[0].data[0];
            sums[2].data[row % channels] += elements(row) * (statistics.data[2 * row + 1] + d * d);
        }
        sums.into()
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |groups, channels, group, span| {
        Example::new(BatchNormSums { group, span }, [&[groups, channels, 2], &[channels]]).filled(Fill::Positive)
    };
    vec![case(1, 1, 32, 1), case(3, 65, 2, 1), case(40, 3, 3, 35), case(70, 5, 1, 9), case(2, 257, 1, 16)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::BatchNorm;

    /// The statistics of groups [0, 0] and [3, 3, 3, 3] pooled: mean 12/6 = 2, variance 36/6 − 2² = 2. The mean of the
    /// two means would be 1.5, that of the variances 0.
    #[test]
    fn groups_are_pooled_by_their_counts() {
        let group = |x: &[f64], r: f64| {
            let step = Step { valid: x.len() as u32, ..Step::default() };
            let x = Reference { shape: [x.len(), 1].into(), data: x.to_vec() };
            let norm = BatchNorm { group: 4, epsilon: 1e-5, affine: false };
            let statistics = norm.reference(&[&x], &step).remove(1);
            let running = Reference { shape: [1].into(), data: vec![r] };
            BatchNormSums { group: 4, span: 1 }.reference(&[&statistics, &running], &step)
        };
        for r in [0.0, 1.25, -7.0] {
            let (a, b) = (group(&[0.0, 0.0], r), group(&[3.0; 4], r));
            let [n, shift, square] = [0, 1, 2].map(|i| a[i].data[0] + b[i].data[0]);
            assert_eq!((n, r + shift / n), (6.0, 2.0));
            let apart = a[1].data[0] / 2.0 - b[1].data[0] / 4.0;
            assert!((square + apart * apart * (2.0 * 4.0 / 6.0) - 6.0 * 2.0).abs() < 1e-12);
        }
    }
}
