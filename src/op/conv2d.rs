//! Two-dimensional convolution (cross-correlation, as everywhere in deep learning) in NCHW layout.

use super::prelude::*;
use super::window::{Window, pads, planes};
use super::{Activation, ActivationGrad, Conv2dGradBias, Conv2dGradInput, Conv2dGradWeight};

/// (x, weight\[, bias\]) → f(x ∗ weight + bias); x (N, C, H, W), weight (O, C/groups, KH, KW), bias (O), result
/// (N, O, OH, OW). Pairs are (vertical, horizontal). Layouts and formulas are PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Distance between two windows.
    pub stride: [usize; 2],
    /// Zeros around x: top, bottom, left, right.
    pub padding: [usize; 4],
    /// Distance between two taps of a window.
    pub dilation: [usize; 2],
    /// Groups of channels that do not mix.
    pub groups: usize,
    /// f; the identity where there is none.
    pub activation: Option<Activation>,
}

impl Default for Conv2d {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, activation: None }
    }
}

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub batch: usize,
    pub groups: usize,
    /// Input and output channels of one group.
    pub channels: [usize; 2],
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub window: Window,
}

impl Conv2d {
    /// The sizes for `x` and `weight`, checked.
    pub(super) fn geometry(&self, op: &str, x: &Shape, weight: &Shape) -> Result<Geometry> {
        let [n, c, h, w] = planes(op, "input", x)?;
        let [o, cg, kh, kw] = planes(op, "weight", weight)?;
        let groups = self.groups;
        if groups == 0 || c % groups != 0 || o % groups != 0 {
            let message = format!("{c} input and {o} output channels do not divide into {groups} groups");
            return Err(Error::shape(op, message));
        }
        if cg != c / groups {
            let message = format!(
                "input {x} in {groups} groups: expected weight [{o}, {}, {kh}, {kw}], got {weight}",
                c / groups
            );
            return Err(Error::shape(op, message));
        }
        let window = Window { kernel: [kh, kw], stride: self.stride, padding: self.padding, dilation: self.dilation };
        let output = window.output(op, [h, w])?;
        Ok(Geometry { batch: n, groups, channels: [cg, o / groups], input: [h, w], output, window })
    }
}

impl Conv2d {
    /// The attributes of an ONNX convolution.
    pub(super) fn attributes(&self) -> Vec<(&'static str, Attribute)> {
        vec![
            ("strides", self.stride.into()),
            ("pads", pads(self.padding)),
            ("dilations", self.dilation.into()),
            ("group", self.groups.into()),
        ]
    }
}

impl Geometry {
    /// (N, O, OH, OW)
    pub fn output_shape(&self) -> Shape {
        [self.batch, self.groups * self.channels[1], self.output[0], self.output[1]].into()
    }

    /// Floating-point operations of the convolution and of either cotangent, taps on padding among them.
    pub fn flops(&self) -> usize {
        2 * self.output_shape().elements() * self.channels[0] * self.window.kernel.iter().product::<usize>()
    }

    /// Adds the window's constants, `GROUPS`, `CG`, `OG` (channels of one group), and the size `n`.
    pub fn constants(&self, kernel: Kernel) -> Kernel {
        let [cg, og] = self.channels;
        let kernel = kernel.size("n", self.batch).constant("GROUPS", self.groups);
        self.window.constants(kernel.constant("CG", cg).constant("OG", og), self.input, self.output)
    }

    /// Calls `term(y, x, weight)` with the positions of every product: y[y] += x[x] weight[weight].
    pub fn products(&self, mut term: impl FnMut(usize, usize, usize)) {
        let ([cg, og], [h, w], [oh, ow]) = (self.channels, self.input, self.output);
        let [kh, kw] = self.window.kernel;
        for (y, (plane, row, column)) in grid([self.batch * self.groups * og, oh, ow]).enumerate() {
            let (n, o) = (plane / (self.groups * og), plane % (self.groups * og));
            for (tap, (c, ky, kx)) in grid([cg, kh, kw]).enumerate() {
                let at = (self.window.tap(0, row, ky, h), self.window.tap(1, column, kx, w));
                if let (Some(iy), Some(ix)) = at {
                    let channel = (n * self.groups + o / og) * cg + c;
                    term(y, (channel * h + iy) * w + ix, o * cg * kh * kw + tap);
                }
            }
        }
    }
}

/// All coordinates of a box in row-major order.
fn grid([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |i| (i / (b * c), i / c % b, i % c))
}

/// Channels that one invocation computes: at most 8, and such that blocks of them fill `channels` evenly.
pub(super) fn channel_tile(channels: usize) -> usize {
    channels.div_ceil(channels.div_ceil(8))
}

/// Neighbouring pixels of a row that one invocation computes: the shaders hold them in a vec4.
pub(super) const ROW_TILE: usize = 4;

/// Channels that a kernel sums over between two tests of its outer loop, a divisor of `channels`. Software adapters
/// keep the sums in memory across a loop's iterations, so there the body is long; GPUs have small instruction caches.
pub(super) fn channel_chunk(g: &Geometry, channels: usize, target: &Target) -> usize {
    let most = if target.tiling == Tiling::Registers { 144 } else { 36 } / (g.window.kernel[0] * g.window.kernel[1]);
    (1..=most.min(32)).rev().find(|chunk| channels.is_multiple_of(*chunk)).unwrap_or(1)
}

/// Invocations of a workgroup: on the few cores of a software adapter, small problems still spread over several.
pub(super) fn workgroup(target: &Target) -> u32 {
    if target.tiling == Tiling::Registers { 16 } else { 64 }
}

impl Op for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Activation::check(self.activation, self.name())?;
        expect_all_f32(self.name(), if inputs.len() == 3 { 3 } else { 2 }, inputs)?;
        let g = self.geometry(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        if let Some(bias) = inputs.get(2) {
            expect_shape(self.name(), "a bias", &[g.output_shape()[1]].into(), &bias.shape)?;
        }
        Ok(vec![TensorType::f32(g.output_shape())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let g = self.geometry(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        let tile = channel_tile(g.channels[1]);
        let segments = g.batch * g.output[0] * g.output[1].div_ceil(ROW_TILE);
        let workgroup = workgroup(target);
        let kernel = Kernel::linear(shader!("conv2d"), workgroup)
            .define_if(inputs.len() == 3, "BIAS")
            .constant("TILE", tile)
            .constant("CHUNK", channel_chunk(&g, g.channels[0], target));
        let kernel = Activation::define(self.activation, g.constants(kernel));
        let groups = segments.div_ceil(workgroup as usize) * g.groups * g.channels[1].div_ceil(tile);
        let mut operands = (0..inputs.len()).map(input).collect::<Vec<_>>();
        operands.push(output(0));
        Ok(Launch::new(kernel, operands, groups).flops(g.flops()).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let conv = Self { activation: None, ..*self };
        let mut dy = node.dy()?;
        if let Some(f) = self.activation {
            let v = if f.grad_from_output() { node.outputs[0] } else { emit.emit(conv, node.inputs)? };
            dy = emit.emit(ActivationGrad(f), &[v, dy])?;
        }
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let (input, kernel) = (emit.shape_of(x), emit.shape_of(weight));
        let mut cotangents = vec![
            node.when(0, || emit.emit(Conv2dGradInput { conv, input }, &[weight, dy]))?,
            node.when(1, || emit.emit(Conv2dGradWeight { conv, weight: kernel }, &[x, dy]))?,
        ];
        if node.inputs.len() == 3 {
            cotangents.push(node.when(2, || emit.emit(Conv2dGradBias, &[dy]))?);
        }
        Ok(cotangents)
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let y = model.node("Conv", &node.values(), &self.attributes());
        Ok(vec![Activation::write(self.activation, model, y)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, weight) = (inputs[0], inputs[1]);
        let g = self.geometry(self.name(), &x.shape, &weight.shape).expect("checked by infer");
        let plane = g.output[0] * g.output[1];
        let bias = |i: usize| inputs.get(2).map_or(0.0, |bias| bias.data[i / plane % bias.data.len()]);
        let mut y = Reference::from_fn(g.output_shape(), bias);
        g.products(|at, xi, wi| y.data[at] += x.data[xi] * weight.data[wi]);
        vec![self.activation.map_or_else(|| y.clone(), |f| y.map(|v| f.eval(v)))]
    }
}

/// Attributes with the shapes of x and weight, for this op and those of its backward pass.
pub(super) fn cases() -> Vec<(Conv2d, [usize; 4], [usize; 4])> {
    let plain = Conv2d::default();
    let same = Conv2d { padding: [1; 4], ..plain };
    let strided = Conv2d { stride: [2, 2], ..same };
    let uneven = Conv2d { stride: [1, 3], padding: [2, 0, 1, 3], dilation: [3, 1], ..plain };
    let dilated = Conv2d { dilation: [2, 3], padding: [0, 1, 4, 2], ..plain };
    vec![
        (plain, [1, 1, 1, 1], [1, 1, 1, 1]),
        (plain, [2, 1, 12, 12], [8, 1, 5, 5]),
        (same, [2, 3, 7, 9], [9, 3, 3, 3]),
        (same, [3, 13, 2, 65], [17, 13, 3, 3]),
        (strided, [2, 4, 11, 8], [6, 4, 3, 3]),
        (uneven, [2, 2, 9, 13], [3, 2, 3, 2]),
        (dilated, [1, 2, 8, 11], [2, 2, 3, 4]),
        (Conv2d { stride: [2, 2], dilation: [2, 2], padding: [3; 4], ..plain }, [1, 2, 7, 7], [3, 2, 3, 3]),
        (Conv2d { stride: [3, 3], ..plain }, [1, 2, 11, 11], [3, 2, 2, 2]),
        (Conv2d { groups: 2, ..same }, [2, 6, 5, 5], [4, 3, 3, 3]),
        (Conv2d { groups: 5, ..strided }, [2, 5, 6, 7], [10, 1, 3, 3]),
        (plain, [3, 63, 3, 1], [65, 63, 1, 1]),
    ]
}

pub(super) fn examples() -> Vec<Example> {
    let mut examples: Vec<_> =
        cases().into_iter().map(|(conv, x, weight)| Example::new(conv, [&x, &weight, &[weight[0]]])).collect();
    let (conv, x, weight) = cases()[2];
    examples.push(Example::new(conv, [&x, &weight]));
    examples.extend(
        Activation::ALL.map(|f| Example::new(Conv2d { activation: Some(f), ..conv }, [&x, &weight, &[weight[0]]])),
    );
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::expect::refusal;

    #[test]
    fn the_reference_computes_a_case_done_by_hand() {
        let x = Reference::from_fn([1, 1, 3, 3], |i| i as f64);
        let weight = Reference::from_fn([1, 1, 2, 2], |i| [1.0, 10.0, 100.0, 1000.0][i]);
        let bias = Reference::from_fn([1], |_| 0.5);
        let conv = Conv2d { stride: [2, 1], padding: [1, 0, 0, 1], ..Conv2d::default() };
        let y = conv.reference(&[&x, &weight, &bias], &Step::default());
        assert_eq!(y[0].shape, [1, 1, 2, 3].into());
        assert_eq!(y[0].data, [1000.5, 2100.5, 200.5, 7643.5, 8754.5, 805.5]);
    }

    #[test]
    fn errors_name_the_numbers() {
        let conv = Conv2d { groups: 2, ..Conv2d::default() };
        let message = refusal(&conv, &[&[1, 3, 5, 5], &[4, 1, 3, 3], &[4]]);
        assert_eq!(message, "conv2d: 3 input and 4 output channels do not divide into 2 groups");
        let message = refusal(&conv, &[&[1, 4, 5, 5], &[4, 4, 3, 3], &[4]]);
        assert_eq!(message, "conv2d: input [1, 4, 5, 5] in 2 groups: expected weight [4, 2, 3, 3], got [4, 4, 3, 3]");
        let message = refusal(&Conv2d::default(), &[&[1, 3, 2, 5], &[4, 3, 3, 3], &[4]]);
        assert_eq!(message, "conv2d: expected height of at least 3 (kernel 3, dilation 1), got 2 with padding [0, 0]");
        let message = refusal(&Conv2d::default(), &[&[1, 3, 5, 5], &[0, 3, 3, 3], &[0]]);
        assert_eq!(message, "conv2d: expected weight of four non-empty dimensions, got [0, 3, 3, 3]");
        let message = refusal(&Conv2d::default(), &[&[1, 3, 5, 5], &[4, 3, 3, 3], &[5]]);
        assert!(message.contains("got [5]"), "{message}");
    }
}
