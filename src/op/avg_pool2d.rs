//! Mean over sliding windows.

use super::AvgPool2dGrad;
use super::prelude::*;
use super::window::Pool;

/// x (N, C, H, W) → the mean of each window (N, C, OH, OW).
#[derive(Debug, Clone, Copy)]
pub struct AvgPool2d {
    /// The windows.
    pub pool: Pool,
    /// Whether padding counts as zeros in the mean; otherwise it is left out.
    pub count_include_pad: bool,
}

impl AvgPool2d {
    /// What the sum over a window that covers `pixels` is divided by.
    pub(super) fn divisor(&self, pixels: usize) -> f64 {
        (if self.count_include_pad { self.pool.kernel[0] * self.pool.kernel[1] } else { pixels }) as f64
    }

    /// Adds the constants that both directions need.
    pub(super) fn constants(&self, kernel: Kernel, x: &Shape, y: &Shape) -> Kernel {
        self.pool.constants(kernel.define_if(self.count_include_pad, "COUNT_PADDING"), x, y)
    }

    /// Attributes and input shapes for tests.
    pub(super) fn cases() -> Vec<(Self, [usize; 4])> {
        let both = |(pool, x)| [true, false].map(|count_include_pad| (Self { pool, count_include_pad }, x));
        Pool::cases().into_iter().flat_map(both).collect()
    }
}

impl Op for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        Ok(vec![TensorType::f32(self.pool.output(self.name(), &x)?)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(shader!("avg_pool2d"), 64);
        let kernel = self.constants(kernel, &inputs[0].shape, &outputs[0].shape);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let input = emit.shape_of(node.inputs[0]);
        Ok(vec![node.when(0, || emit.emit(AvgPool2dGrad { pool: *self, input }, &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let mut attributes = self.pool.attributes();
        attributes.push(("count_include_pad", self.count_include_pad.into()));
        Ok(vec![model.node("AveragePool", &[node.input(0)], &attributes)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let mean = |window: Vec<usize>| window.iter().map(|&i| x.data[i]).sum::<f64>() / self.divisor(window.len());
        let data = self.pool.window().positions(&x.shape).map(mean).collect();
        vec![Reference { shape: self.pool.output(self.name(), &x.shape).expect("checked by infer"), data }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    AvgPool2d::cases().into_iter().map(|(op, x)| Example::new(op, [&x])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_counts_only_where_asked() {
        let x = Reference { shape: [1, 1, 1, 2].into(), data: vec![4.0, 8.0] };
        let pool = Pool { padding: [0, 0, 1, 0], stride: [1, 2], ..Pool::new([1, 2]) };
        let mean = |count_include_pad| AvgPool2d { pool, count_include_pad }.reference(&[&x], &Step::default());
        assert_eq!(mean(true)[0].data, [2.0]);
        assert_eq!(mean(false)[0].data, [4.0]);
    }
}
