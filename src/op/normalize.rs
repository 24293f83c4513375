//! Normalisation that depends on a sample alone: layer norm, RMS norm, group norm.

use super::normalize_grad::NormalizeGrad;
use super::normalize_grad_weight::NormalizeGradWeight;
use super::prelude::*;
use super::rows::launch;

/// Over which elements the statistics are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Normalization {
    /// Along the last dimension (Ba, Kiros and Hinton, "Layer Normalization", 2016).
    Layer,
    /// Along the last dimension, without a mean (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).
    Rms,
    /// Over so many groups of channels in x [N, C, ...] (Wu and He, "Group Normalization", 2018).
    Group(usize),
}

/// x, and weight \[C\], and bias \[C\], where there are any → (y, statistics): y = (x − mean) / √(variance + ε) ·
/// weight + bias.
///
/// C is the last dimension of x, or for groups the second one. The statistics, [rows, 2], are each row's mean and
/// 1 / √(variance + ε), a row being what shares them; they are there for the backward pass and have no gradient
/// themselves. The variance is that of the row itself (divided by the number of elements), computed in a second pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// What is normalised.
    pub kind: Normalization,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there is a weight.
    pub weight: bool,
    /// Whether there is a bias; only with a weight.
    pub bias: bool,
}

/// x as the kernels see it: [samples, groups, channels of a group, span]; a row is a sample's group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub samples: usize,
    pub groups: usize,
    /// Channels of a group.
    pub channels: usize,
    /// Elements of a channel.
    pub span: usize,
}

impl Rows {
    /// All channels: the extent of weight and bias.
    pub fn weights(&self) -> usize {
        self.groups * self.channels
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.samples * self.groups
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.channels * self.span
    }

    /// The statistics' type.
    pub fn statistics(&self) -> TensorType {
        TensorType::f32([self.count(), 2])
    }

    /// The channel of an element of x.
    pub fn channel(&self, position: usize) -> usize {
        position / self.span % self.weights()
    }

    /// Adds the constants `GROUPS`, `CHANNELS` and `SPAN`.
    pub fn constants(&self, kernel: Kernel) -> Kernel {
        kernel.constant("GROUPS", self.groups).constant("CHANNELS", self.channels).constant("SPAN", self.span)
    }
}

impl Normalization {
    /// How x splits into rows.
    pub(super) fn rows(self, op: &str, x: &Shape) -> Result<Rows> {
        if x.rank() == 0 || x.elements() == 0 {
            return Err(Error::shape(op, format!("expected an input that is not empty, got {x}")));
        }
        match (self, x.dims()) {
            (Self::Layer | Self::Rms, [lead @ .., last]) => {
                Ok(Rows { samples: lead.iter().product(), groups: 1, channels: *last, span: 1 })
            }
            (Self::Group(groups), [samples, channels, rest @ ..]) => {
                if groups == 0 || channels % groups != 0 {
                    let message = format!("expected groups that divide {channels} channels, got {groups}");
                    return Err(Error::shape(op, message));
                }
                let span = rest.iter().product();
                Ok(Rows { samples: *samples, groups, channels: channels / groups, span })
            }
            _ => Err(Error::shape(op, format!("expected an input [N, C, ...], got {x}"))),
        }
    }

    /// The name of the layer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer_norm",
            Self::Rms => "rms_norm",
            Self::Group(_) => "group_norm",
        }
    }
}

impl Normalize {
    /// The inputs' number.
    fn inputs(&self) -> usize {
        1 + usize::from(self.weight) + usize::from(self.bias)
    }
}

/// Each row's mean and 1 / √(variance + ε).
fn statistics(kind: Normalization, epsilon: f32, row: &[f64]) -> [f64; 2] {
    let count = row.len() as f64;
    let mean = if kind == Normalization::Rms { 0.0 } else { row.iter().sum::<f64>() / count };
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    [mean, 1.0 / (variance + f64::from(epsilon)).sqrt()]
}

impl Op for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let error = |message| Err(Error::shape(self.kind.name(), message));
        if self.bias && !self.weight {
            return error("expected a weight where there is a bias".to_owned());
        }
        if !self.epsilon.is_finite() || self.epsilon < 0.0 {
            return error(format!("expected an epsilon of 0 or more, got {}", self.epsilon));
        }
        expect_all_f32(self.kind.name(), self.inputs(), inputs)?;
        let rows = self.kind.rows(self.kind.name(), &inputs[0].shape)?;
        for (ty, what) in inputs[1..].iter().zip(["a weight", "a bias"]) {
            expect_shape(self.kind.name(), what, &[rows.weights()].into(), &ty.shape)?;
        }
        Ok(vec![inputs[0].clone(), rows.statistics()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let rows = self.kind.rows(self.name(), &inputs[0].shape)?;
        let mut operands = vec![input(0), output(0), output(1)];
        operands.extend((1..inputs.len()).map(input));
        let mut launch = launch(shader!("normalize"), target, rows.count(), rows.columns(), operands);
        launch.kernel = rows
            .constants(launch.kernel)
            .constant("EPSILON", self.epsilon)
            .define_if(self.kind == Normalization::Rms, "RMS")
            .define_if(self.weight, "WEIGHT")
            .define_if(self.bias, "BIAS");
        Ok(launch.into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let [Some(dy), None] = *node.cotangents else {
            return Err(Error::shape(self.name(), "has no backward rule for its statistics"));
        };
        let (x, statistics) = (node.inputs[0], node.outputs[1]);
        let dx = node.when(0, || {
            let mut inputs = vec![x, statistics, dy];
            inputs.extend(self.weight.then(|| node.inputs[1]));
            emit.emit(NormalizeGrad { kind: self.kind, weight: self.weight }, &inputs)
        })?;
        let mut gradients = vec![dx];
        if node.wanted[1..].contains(&true) {
            let op = NormalizeGradWeight { kind: self.kind, bias: self.bias };
            gradients.extend(emit.emit_all(std::sync::Arc::new(op), &[x, statistics, dy])?.into_iter().map(Some));
        }
        gradients.resize(self.inputs(), None);
        Ok(gradients)
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let dims = &node.inputs[0].dims;
        let (x, grouped) = (node.input(0), matches!(self.kind, Normalization::Group(_)));
        let channels = node.extent(0, if grouped { 1 } else { dims.len() - 1 })?;
        let mut y = match self.kind {
            Normalization::Layer => {
                // Its operator takes weight and bias, and must have the former.
                let ones = model.floats(&[channels], &vec![1.0; channels]);
                let mut inputs = node.values();
                if !self.weight {
                    inputs.push(&ones);
                }
                let attributes = [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(self.epsilon))];
                return Ok(vec![model.node("LayerNormalization", &inputs, &attributes)]);
            }
            Normalization::Rms => {
                let (square, last) = (model.binary("Mul", x, x), model.integers(&[1], &[-1]));
                let mean = model.binary("ReduceMean", &square, &last);
                let shifted = model.with_number("Add", &mean, self.epsilon);
                let root = model.unary("Sqrt", &shifted);
                model.binary("Div", x, &root)
            }
            Normalization::Group(groups) => {
                let sample = (1..dims.len()).map(|axis| node.extent(0, axis)).product::<Result<usize>>()?;
                let rows = [dims[0], onnx::Dim::Fixed(groups), onnx::Dim::Fixed(sample / groups)];
                let rows = model.reshape(x, &rows)?;
                let (ones, zeros) =
                    (model.floats(&[groups], &vec![1.0; groups]), model.floats(&[groups], &vec![0.0; groups]));
                let attributes = [("epsilon", Attribute::Float(self.epsilon))];
                let rows = model.node("InstanceNormalization", &[&rows, &ones, &zeros], &attributes);
                model.reshape(&rows, dims)?
            }
        };
        for (index, operator) in (1..node.inputs.len()).zip(["Mul", "Add"]) {
            let mut along = vec![onnx::Dim::Fixed(1); if grouped { dims.len() - 1 } else { 1 }];
            along[0] = onnx::Dim::Fixed(channels);
            let factor = model.reshape(node.input(index), &along)?;
            y = model.binary(operator, &y, &factor);
        }
        Ok(vec![y])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let rows = self.kind.rows(self.name(), &x.shape).expect("checked by infer");
        let all: Vec<[f64; 2]> =
            x.data.chunks(rows.columns()).map(|row| statistics(self.kind, self.epsilon, row)).collect();
        let y = Reference::from_fn(x.shape.clone(), |i| {
            let [mean, scale] = all[i / rows.columns()];
            let weight = if self.weight { inputs[1].data[rows.channel(i)] } else { 1.0 };
            let bias = if self.bias { inputs[2].data[rows.channel(i)] } else { 0.0 };
            (x.data[i] - mean) * scale * weight + bias
        });
        vec![y, Reference { shape: rows.statistics().shape, data: all.concat() }]
    }
}

/// Shapes of x, and its channels, that this op and its gradients are tested with.
pub(super) fn cases() -> Vec<(Normalization, Vec<usize>, usize)> {
    vec![
        (Normalization::Layer, vec![65, 10], 10),
        (Normalization::Layer, vec![3, 32], 32),
        (Normalization::Layer, vec![2, 3, 63], 63),
        (Normalization::Layer, vec![601, 65], 65), // weight gradients in parts
        (Normalization::Layer, vec![3, 1000], 1000),
        (Normalization::Rms, vec![7, 2, 5], 5),
        (Normalization::Rms, vec![66, 131], 131),
        (Normalization::Group(1), vec![3, 5], 5),
        (Normalization::Group(2), vec![5, 6, 1, 3], 6),
        (Normalization::Group(3), vec![2, 6, 7, 5], 6),
        (Normalization::Group(2), vec![3, 4, 37, 33], 4), // rows of more than 256, weight gradients in parts
    ]
}

pub(super) fn examples() -> Vec<Example> {
    let op = |kind, weight, bias| Normalize { kind, epsilon: 1e-5, weight, bias };
    let mut examples: Vec<_> =
        cases().into_iter().map(|(kind, x, c)| Example::new(op(kind, true, true), [&x, &[c], &[c]])).collect();
    examples.push(Example::new(op(Normalization::Layer, false, false), [&[5, 31]]).filled(Fill::Positive));
    examples.push(Example::new(op(Normalization::Rms, true, false), [&[4, 300], &[300]]));
    examples.push(Example::new(op(Normalization::Group(5), true, false), [&[2, 5, 9], &[5]]));
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::expect::refusal;

    fn message(kind: Normalization, shapes: &[&[usize]]) -> String {
        let op = Normalize { kind, epsilon: 1e-5, weight: shapes.len() > 1, bias: shapes.len() > 2 };
        refusal(&op, shapes)
    }

    #[test]
    fn errors_name_what_was_given() {
        let group = Normalization::Group(4);
        assert_eq!(message(group, &[&[2, 6, 3]]), "group_norm: expected groups that divide 6 channels, got 4");
        assert_eq!(message(group, &[&[4]]), "group_norm: expected an input [N, C, ...], got [4]");
        assert_eq!(message(Normalization::Layer, &[&[2, 6], &[5]]), "layer_norm: expected a weight [6], got [5]");
        assert_eq!(
            message(Normalization::Rms, &[&[2, 0]]),
            "rms_norm: expected an input that is not empty, got [2, 0]"
        );
    }

    #[test]
    fn rows_have_mean_0_and_variance_1() {
        let op = Normalize { kind: Normalization::Layer, epsilon: 0.0, weight: false, bias: false };
        let x = Reference { shape: [1, 4].into(), data: vec![1.0, 2.0, 3.0, 6.0] };
        let outputs = op.reference(&[&x], &Step::default());
        assert_eq!(outputs[1].data[0], 3.0);
        assert!(outputs[0].data.iter().sum::<f64>().abs() < 1e-12);
        assert!((outputs[0].data.iter().map(|y| y * y).sum::<f64>() - 4.0).abs() < 1e-12);
    }
}
