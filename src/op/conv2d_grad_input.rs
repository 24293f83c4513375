//! Cotangent of a convolution's input.

use super::conv2d::{ROW_TILE, cases, channel_chunk, channel_tile, workgroup};
use super::prelude::*;
use super::{Conv2d, Conv2dGradWeight};

/// (weight, dy) → dx: the transposed convolution.
#[derive(Debug, Clone)]
pub struct Conv2dGradInput {
    /// The convolution; its activation does not matter here.
    pub conv: Conv2d,
    /// Shape of x, which dy's does not determine.
    pub input: Shape,
}

impl Op for Conv2dGradInput {
    fn name(&self) -> &'static str {
        "conv2d_grad_input"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [weight, dy] = expect_f32(self.name(), inputs)?;
        let expected = self.conv.geometry(self.name(), &self.input, &weight)?.output_shape();
        expect_shape(self.name(), "dy", &expected, &dy)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let g = self.conv.geometry(self.name(), &self.input, &inputs[0].shape)?;
        let tile = channel_tile(g.channels[0]);
        let [sh, sw] = self.conv.stride;
        let segments = g.batch * g.input[0].div_ceil(sh) * g.input[1].div_ceil(sw * ROW_TILE);
        let workgroup = workgroup(target);
        let kernel = Kernel::linear(shader!("conv2d_grad_input"), workgroup)
            .constant("TILE", tile)
            .constant("CHUNK", channel_chunk(&g, g.channels[1], target));
        let blocks = g.groups * g.channels[0].div_ceil(tile) * sh * sw;
        let groups = segments.div_ceil(workgroup as usize) * blocks;
        let operands = vec![input(0), input(1), output(0)];
        Ok(Launch::new(g.constants(kernel), operands, groups).flops(g.flops()).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        // It is linear in weight and dy, and the cotangent of dx stands where x does.
        let (ddx, [weight, dy]) = (node.dy()?, [node.inputs[0], node.inputs[1]]);
        let conv = Conv2d { activation: None, ..self.conv };
        let kernel = emit.shape_of(weight);
        let dweight = node.when(0, || emit.emit(Conv2dGradWeight { conv, weight: kernel }, &[ddx, dy]))?;
        Ok(vec![dweight, node.when(1, || emit.emit(conv, &[ddx, weight]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        // What an ONNX transposed convolution gives less than the input that the convolution has had.
        let mut missing = [0; 2];
        for (axis, missing) in missing.iter_mut().enumerate() {
            let window = self.conv.dilation[axis] * (node.extent(0, 2 + axis)? - 1) + 1;
            let full = (node.extent(1, 2 + axis)? - 1) * self.conv.stride[axis] + window;
            *missing = self.input[2 + axis] + self.conv.padding[2 * axis] + self.conv.padding[2 * axis + 1] - full;
        }
        let mut attributes = self.conv.attributes();
        attributes.push(("output_padding", missing.into()));
        Ok(vec![model.node("ConvTranspose", &[node.input(1), node.input(0)], &attributes)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (weight, dy) = (inputs[0], inputs[1]);
        let g = self.conv.geometry(self.name(), &self.input, &weight.shape).expect("checked by infer");
        let mut dx = Reference::zeros(self.input.clone());
        g.products(|y, x, w| dx.data[x] += dy.data[y] * weight.data[w]);
        vec![dx]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(conv, x, weight): (Conv2d, [usize; 4], [usize; 4])| {
        let g = conv.geometry("example", &x.into(), &weight.into()).expect("the cases fit");
        Example::new(Conv2dGradInput { conv, input: x.into() }, [&weight, g.output_shape().dims()])
    };
    cases().into_iter().map(case).collect()
}
