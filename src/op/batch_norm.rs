//! Batch norm over fixed groups of samples.

use super::batch_norm_grad::BatchNormGrad;
use super::batch_norm_grad_sums::BatchNormGradSums;
use super::prelude::*;
use super::rows::launch;
use super::sum_to::SumTo;

/// x [N, C, ...], and where it is affine weight \[C\] and bias \[C\] → (y, statistics [G, C, 2]): y = (x − mean) /
/// √(variance + ε) · weight + bias (Ioffe and Szegedy, "Batch Normalization", 2015).
///
/// Mean and variance are those of a channel over `group` consecutive samples (Hoffer, Hubara and Soudry, "Train longer,
/// generalize better", 2017: ghost batch norm), the last group having what is left. They are the statistics, which are
/// there for the backward pass and for running statistics, and have no gradient themselves. The variance is divided by
/// the number of elements, and computed from what is left after the mean is taken off.
///
/// Rows beyond [`Step::valid`] are padding: they are normalised, and are in no mean and no variance. A group of nothing
/// but padding has mean 0 and variance 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNorm {
    /// Samples that share statistics.
    pub group: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there are weight and bias.
    pub affine: bool,
}

/// Most elements whose mean a row of invocations takes: bounds rounding errors and iterations.
const PART: usize = 16_384;

/// x as the kernels see it: [samples, channels, span].
#[derive(Debug, Clone, Copy)]
pub(super) struct Grouped {
    pub samples: usize,
    pub channels: usize,
    /// Elements of a channel in a sample.
    pub span: usize,
    /// Samples of a group; at most all.
    pub group: usize,
}

impl Grouped {
    /// How x splits into groups.
    ///
    /// # Errors
    /// When x has no channels, is empty, or a group is.
    pub fn new(op: &str, x: &Shape, group: usize) -> Result<Self> {
        let [samples, channels, rest @ ..] = x.dims() else {
            return Err(Error::shape(op, format!("expected an input [N, C, ...], got {x}")));
        };
        if x.elements() == 0 {
            return Err(Error::shape(op, format!("expected an input that is not empty, got {x}")));
        }
        if group == 0 {
            return Err(Error::shape(op, "expected a group of 1 sample or more, got 0"));
        }
        let span = rest.iter().product();
        Ok(Self { samples: *samples, channels: *channels, span, group: group.min(*samples) })
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.samples.div_ceil(self.group)
    }

    /// Number of channels in groups, each with a mean and a variance.
    pub fn rows(&self) -> usize {
        self.groups() * self.channels
    }

    /// Into how many parts a row is cut.
    pub fn parts(&self) -> usize {
        (self.group * self.span).div_ceil(PART)
    }

    /// The statistics' type.
    pub fn statistics(&self) -> TensorType {
        TensorType::f32([self.groups(), self.channels, 2])
    }

    /// The type of sums over the groups.
    pub fn sums(&self) -> TensorType {
        TensorType::f32([self.groups(), self.channels])
    }

    /// Adds the constants that the kernels know x by.
    pub fn constants(&self, kernel: Kernel) -> Kernel {
        kernel
            .size("groups", self.groups())
            .size("samples", self.samples)
            .constant("GROUP", self.group)
            .constant("CHANNELS", self.channels)
            .constant("SPAN", self.span)
            .constant("PART", PART)
            .constant("PARTS", self.parts())
    }

    /// A launch over the parts of all rows, with the constants.
    pub fn over_parts(&self, shader: Shader, target: &Target, operands: Vec<(Operand, Access)>) -> Launch {
        let columns = (self.group * self.span).min(PART);
        let mut launch = launch(shader, target, self.rows() * self.parts(), columns, operands);
        launch.kernel = self.constants(launch.kernel);
        launch
    }

    /// The row of statistics that an element of x belongs to.
    pub fn row(&self, element: usize) -> usize {
        self.sample(element) / self.group * self.channels + element / self.span % self.channels
    }

    /// The sample that an element of x belongs to.
    pub fn sample(&self, element: usize) -> usize {
        element / (self.channels * self.span)
    }

    /// Elements that the statistics of `row` are taken of.
    pub fn valid(&self, row: usize, step: &Step) -> usize {
        let first = row / self.channels * self.group;
        (step.valid as usize).saturating_sub(first).min(self.group) * self.span
    }
}

/// 1 / √(variance + ε).
pub(super) fn scale(variance: f64, epsilon: f32) -> f64 {
    1.0 / (variance + f64::from(epsilon)).sqrt()
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let error = |message| Err(Error::shape(self.name(), message));
        if !self.epsilon.is_finite() || self.epsilon < 0.0 {
            return error(format!("expected an epsilon of 0 or more, got {}", self.epsilon));
        }
        expect_all_f32(self.name(), if self.affine { 3 } else { 1 }, inputs)?;
        let grouped = Grouped::new(self.name(), &inputs[0].shape, self.group)?;
        for (ty, what) in inputs[1..].iter().zip(["a weight", "a bias"]) {
            expect_shape(self.name(), what, &[grouped.channels].into(), &ty.shape)?;
        }
        Ok(vec![inputs[0].clone(), grouped.statistics()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let grouped = Grouped::new(self.name(), &inputs[0].shape, self.group)?;
        let mut lowering = Lowering::default();
        let first = if grouped.parts() == 1 { output(1) } else { (Operand::Scratch(0), Access::ReadWrite) };
        let mut statistics = grouped.over_parts(shader!("batch_norm_statistics"), target, vec![input(0), first]);
        statistics.kernel = statistics.kernel.define_if(grouped.parts() > 1, "PARTIAL");
        lowering.launches.push(statistics);
        if grouped.parts() > 1 {
            lowering.scratch.push((grouped.parts() * grouped.rows() * 2 * 4) as u64);
            let kernel = grouped.constants(Kernel::linear(shader!("batch_norm_merge"), 64));
            let operands = vec![(Operand::Scratch(0), Access::Read), output(1)];
            lowering.launches.push(elementwise(kernel, grouped.rows(), operands));
        }
        let kernel = grouped
            .constants(Kernel::linear(shader!("batch_norm"), 64))
            .constant("EPSILON", self.epsilon)
            .define_if(self.affine, "AFFINE");
        let mut operands = vec![input(0), (Operand::Output(1), Access::Read), output(0)];
        operands.extend((1..inputs.len()).map(input));
        lowering.launches.push(elementwise(kernel, inputs[0].shape.elements(), operands));
        Ok(lowering)
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let [Some(dy), None] = *node.cotangents else {
            return Err(Error::shape(self.name(), "has no backward rule for its statistics"));
        };
        let Self { group, epsilon, affine } = *self;
        let (x, statistics) = (node.inputs[0], node.outputs[1]);
        let sums = BatchNormGradSums { group, epsilon };
        let sums = emit.emit_all(std::sync::Arc::new(sums), &[x, statistics, dy])?;
        let dx = node.when(0, || {
            let mut inputs = vec![x, statistics, dy, sums[0], sums[1]];
            inputs.extend(affine.then(|| node.inputs[1]));
            emit.emit(BatchNormGrad { group, epsilon, affine }, &inputs)
        })?;
        let mut gradients = vec![dx];
        for (input, sum) in (1..node.inputs.len()).zip([sums[1], sums[0]]) {
            let channels = emit.shape_of(node.inputs[input]);
            gradients.push(node.when(input, || emit.emit(SumTo(channels), &[sum]))?);
        }
        Ok(gradients)
    }

    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let grouped = Grouped::new(self.name(), &x.shape, self.group).expect("checked by infer");
        let mean_of = |value: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0; grouped.rows()];
            let valid = (0..x.data.len()).filter(|&i| grouped.sample(i) < step.valid as usize);
            valid.for_each(|i| sums[grouped.row(i)] += value(i));
            let mean = |(row, sum): (usize, &f64)| sum / grouped.valid(row, step).max(1) as f64;
            sums.iter().enumerate().map(mean).collect()
        };
        let means = mean_of(&|i| x.data[i]);
        let variances = mean_of(&|i| (x.data[i] - means[grouped.row(i)]).powi(2));
        let variance = |row: usize| if grouped.valid(row, step) == 0 { 1.0 } else { variances[row] };
        let y = Reference::from_fn(x.shape.clone(), |i| {
            let row = grouped.row(i);
            let affine =
                |index: usize, plain| if self.affine { inputs[index].data[row % grouped.channels] } else { plain };
            (x.data[i] - means[row]) * scale(variance(row), self.epsilon) * affine(1, 1.0) + affine(2, 0.0)
        });
        let statistics =
            Reference::from_fn(grouped.statistics().shape, |i| if i % 2 == 0 { means[i / 2] } else { variance(i / 2) });
        vec![y, statistics]
    }

    fn group(&self) -> usize {
        self.group
    }
}

/// Shapes of x, and the samples of a group, that this op and its gradients are tested with.
pub(super) fn cases() -> Vec<(Vec<usize>, usize)> {
    vec![
        (vec![8, 5], 4),
        (vec![1, 1], 32),
        (vec![13, 65], 5), // a short last group
        (vec![70, 3], 70),
        (vec![6, 3, 7], 3),
        (vec![5, 2, 9, 7], 2),
        (vec![3, 4, 17, 11], 32),
        (vec![131, 2, 16, 17], 128), // in parts, of which the last group has one
    ]
}

pub(super) fn examples() -> Vec<Example> {
    let op = |group, affine| BatchNorm { group, epsilon: 1e-5, affine };
    let mut examples: Vec<_> =
        cases().into_iter().map(|(x, group)| Example::new(op(group, true), [&x, &[x[1]], &[x[1]]])).collect();
    examples.push(Example::new(op(3, false), [&[7, 31]]));
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::expect::refusal;

    #[test]
    fn errors_name_what_was_given() {
        let op = BatchNorm { group: 2, epsilon: 1e-5, affine: true };
        assert_eq!(refusal(&op, &[&[4], &[4], &[4]]), "batch_norm: expected an input [N, C, ...], got [4]");
        assert_eq!(refusal(&op, &[&[4, 3], &[4], &[3]]), "batch_norm: expected a weight [3], got [4]");
        assert_eq!(refusal(&op, &[&[4, 3], &[3], &[4]]), "batch_norm: expected a bias [3], got [4]");
        assert_eq!(refusal(&op, &[&[4, 0], &[0], &[0]]), "batch_norm: expected an input that is not empty, got [4, 0]");
        assert_eq!(refusal(&op, &[&[4, 3]]), "batch_norm: expected 3 inputs, got 1");
        let none = BatchNorm { group: 0, ..op };
        assert_eq!(refusal(&none, &[&[4, 3], &[3], &[3]]), "batch_norm: expected a group of 1 sample or more, got 0");
        let epsilon = BatchNorm { epsilon: f32::NAN, ..op };
        assert_eq!(refusal(&epsilon, &[&[4, 3]]), "batch_norm: expected an epsilon of 0 or more, got NaN");
    }

    #[test]
    fn padding_changes_no_valid_row() {
        let op = BatchNorm { group: 2, epsilon: 0.0, affine: false };
        let run = |x: &[f64], valid| {
            let x = Reference { shape: [x.len(), 1].into(), data: x.to_vec() };
            op.reference(&[&x], &Step { valid, ..Step::default() })
        };
        let outputs = run(&[1.0, 3.0, 5.0, 7.0, 9.0, 9.0], 3);
        assert_eq!(outputs[0].data[..2], [-1.0, 1.0]);
        assert_eq!(outputs[1].data, [2.0, 1.0, 5.0, 0.0, 0.0, 1.0]);
        assert_eq!(run(&[1.0, 3.0, 5.0], 3)[1].data, outputs[1].data[..4]);
        assert!(outputs[0].data[4..].iter().all(|y| y.is_finite()));
    }
}
