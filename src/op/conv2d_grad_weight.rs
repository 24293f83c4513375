//! Cotangent of a convolution's weight.

use super::conv2d::{Geometry, cases, channel_tile};
use super::prelude::*;
use super::sum_to::{MAX_TERMS, partial, summed};
use super::{Conv2d, Conv2dGradInput};

/// (x, dy) → dweight, in a fixed order of summation.
#[derive(Debug, Clone)]
pub struct Conv2dGradWeight {
    /// The convolution; its activation does not matter here.
    pub conv: Conv2d,
    /// Shape of the weight.
    pub weight: Shape,
}

/// Pixels of a row that the kernel's inner loop covers unrolled.
const CHUNK: usize = 4;

/// Rows of dy that one partial sum covers, so that about `workgroups` run at once where a split has `blocks` of them.
/// A partial sum covers 64 pixels at least: fewer would not pay for adding it up.
fn split_rows(g: &Geometry, blocks: usize, workgroups: usize) -> usize {
    let (rows, width) = (g.batch * g.output[0], g.output[1]);
    let splits = workgroups.div_ceil(blocks).min(rows);
    let most = (MAX_TERMS / width).max(1);
    rows.div_ceil(splits).max(64usize.div_ceil(width)).min(rows).min(most)
}

impl Op for Conv2dGradWeight {
    fn name(&self) -> &'static str {
        "conv2d_grad_weight"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, dy] = expect_f32(self.name(), inputs)?;
        let expected = self.conv.geometry(self.name(), &x, &self.weight)?.output_shape();
        expect_shape(self.name(), "dy", &expected, &dy)?;
        Ok(vec![TensorType::f32(self.weight.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let g = self.conv.geometry(self.name(), &inputs[0].shape, &self.weight)?;
        let [kh, kw] = g.window.kernel;
        let wide = kw >= 3;
        let taps = g.channels[0] * kh * if wide { kw.div_ceil(4) } else { kw };
        let workgroup = if taps > 32 { 64 } else { taps.next_power_of_two().max(8) };
        let tile = channel_tile(g.channels[1]);
        let blocks = g.groups * g.channels[1].div_ceil(tile) * taps.div_ceil(workgroup);
        let rows = split_rows(&g, blocks, if target.tiling == Tiling::Registers { 64 } else { 512 });
        let splits = (g.batch * g.output[0]).div_ceil(rows);
        let kernel = Kernel::linear(shader!("conv2d_grad_weight"), workgroup as u32)
            .define_if(wide, "WIDE")
            .constant("TILE", tile)
            .constant("CHUNK", CHUNK)
            .size("rows", rows)
            .size("splits", splits);
        let operands = vec![input(0), input(1), partial(splits, 0)];
        let launch = Launch::new(g.constants(kernel), operands, blocks * splits).flops(g.flops()).adding();
        summed(launch, 1, [splits, self.weight.elements()], target)
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        // It is linear in x and dy, and the cotangent of dweight stands where the weight does.
        let (ddw, [x, dy]) = (node.dy()?, [node.inputs[0], node.inputs[1]]);
        let conv = Conv2d { activation: None, ..self.conv };
        let input = emit.shape_of(x);
        let dx = node.when(0, || emit.emit(Conv2dGradInput { conv, input }, &[ddw, dy]))?;
        Ok(vec![dx, node.when(1, || emit.emit(conv, &[x, ddw]))?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, dy) = (inputs[0], inputs[1]);
        let g = self.conv.geometry(self.name(), &x.shape, &self.weight).expect("checked by infer");
        let mut dw = Reference::zeros(self.weight.clone());
        g.products(|yi, xi, wi| dw.data[wi] += dy.data[yi] * x.data[xi]);
        vec![dw]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(conv, x, weight): (Conv2d, [usize; 4], [usize; 4])| {
        let g = conv.geometry("example", &x.into(), &weight.into()).expect("the cases fit");
        Example::new(Conv2dGradWeight { conv, weight: weight.into() }, [&x, g.output_shape().dims()])
    };
    // So many partial sums that they are added in parts themselves.
    let tall = (Conv2d::default(), [8, 1, 66, 66], [1, 1, 3, 3]);
    cases().into_iter().chain([tall]).map(case).collect()
}
