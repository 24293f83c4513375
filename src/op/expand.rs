//! Broadcasts a tensor to a larger shape.

use super::broadcast::{Walk, broadcast};
use super::prelude::*;
use super::sum_to::sum_to;

/// x → x repeated to the given shape, by NumPy's broadcasting.
#[derive(Debug, Clone)]
pub struct Expand(pub Shape);

impl Op for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        if broadcast(self.name(), &x, &self.0)? != self.0 {
            return Err(Error::shape(self.name(), format!("{x} does not broadcast to {}", self.0)));
        }
        Walk::new(self.name(), &self.0, [&x])?;
        Ok(vec![TensorType::f32(self.0.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let walk = Walk::new(self.name(), &self.0, [&inputs[0].shape])?;
        let kernel = Kernel::linear(shader!("expand"), 64);
        let kernel = walk.constants(kernel, ["D1", "D2", "D3"], [["A0", "A1", "A2", "A3"]]);
        Ok(elementwise(kernel, self.0.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        Ok(vec![node.when(0, || sum_to(emit, dy, node.inputs[0]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let shape = model.shape(&node.outputs[0])?;
        Ok(vec![model.binary("Expand", node.input(0), &shape)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let walk = Walk::new(self.name(), &self.0, [&x.shape]).expect("checked by infer");
        vec![Reference { shape: self.0.clone(), data: walk.positions().map(|[i]| x.data[i]).collect() }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |to: &[usize], from: &[usize]| Example::new(Expand(Shape::from(to.to_vec())), [from]);
    vec![
        case(&[65], &[]),
        case(&[65, 7], &[7]),
        case(&[3, 5, 2, 7], &[5, 1, 1]),
        case(&[63, 1], &[63, 1]),
        case(&[70_001, 61], &[61]), // more than 65,535 workgroups
    ]
}
