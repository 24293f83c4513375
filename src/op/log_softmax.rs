//! Logarithm of softmax over the last dimension.

use super::kernel::{input, output};
use super::rows::{along_last, launch};
use super::{
    Attribute, Backward, Builder, Emit, Entry, Example, Fill, LogSoftmaxGrad, Lowering, Op, Reference, Step, Target,
    Value, ValueId, expect_f32, onnx,
};
use crate::error::Result;
use crate::op::shader::shader;
use crate::tensor::TensorType;

/// Table line.
pub const ENTRY: Entry = Entry { name: "log_softmax", examples };

/// x [..., C] → ln(exp(x) / Σ exp(x)) along the last dimension: x − max x − ln Σ exp(x − max x), finite where softmax is 0.
#[derive(Debug, Clone, Copy)]
pub struct LogSoftmax;

impl Op for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        along_last(self.name(), &x)?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (rows, columns) = along_last(self.name(), &inputs[0].shape)?;
        Ok(launch(shader!("log_softmax"), rows, columns, vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let inputs = [node.outputs[0], node.dy()?];
        Ok(vec![node.when(0, || emit.emit(LogSoftmaxGrad, &inputs))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![model.node("LogSoftmax", &[node.input(0)], &[("axis", Attribute::Int(-1))])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let mut y = inputs[0].clone();
        let columns = y.shape[y.shape.rank() - 1];
        for row in y.data.chunks_mut(columns) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            row.iter_mut().for_each(|x| *x -= max + sum.ln());
        }
        vec![y]
    }
}

fn examples() -> Vec<Example> {
    let shapes: [&[usize]; 6] = [&[1], &[65, 10], &[3, 32], &[5, 63], &[2, 3, 65], &[3, 1000]];
    let wide = Example::new(LogSoftmax, [&[7, 33]]).filled(Fill::Wide);
    shapes.map(|shape| Example::new(LogSoftmax, [shape])).into_iter().chain([wide]).collect()
}
