//! Choice between two tensors, element by element. (`where` is a keyword.)

use super::Binary;
use super::broadcast::{Walk, broadcast};
use super::prelude::*;
use super::sum_to::sum_to;

/// (condition, a, b) → a where the condition is not 0, else b; broadcast by NumPy's rules. The condition has no
/// gradient.
#[derive(Debug, Clone, Copy)]
pub struct Where;

impl Where {
    fn walk(&self, shapes: &[&Shape; 3]) -> Result<(Shape, Walk<3>)> {
        let [condition, a, b] = *shapes;
        let shape = broadcast("where", &broadcast("where", condition, a)?, b)?;
        let walk = Walk::new("where", &shape, [condition, a, b])?;
        Ok((shape, walk))
    }
}

impl Op for Where {
    fn name(&self) -> &'static str {
        "where_"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [condition, a, b] = expect_f32("where", inputs)?;
        Ok(vec![TensorType::f32(self.walk(&[&condition, &a, &b])?.0)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (_, walk) = self.walk(&[&inputs[0].shape, &inputs[1].shape, &inputs[2].shape])?;
        let strides = [["C0", "C1", "C2", "C3"], ["A0", "A1", "A2", "A3"], ["B0", "B1", "B2", "B3"]];
        let kernel = walk.constants(Kernel::linear(shader!("where_"), 64), ["D1", "D2", "D3"], strides);
        let operands = vec![input(0), input(1), input(2), output(0)];
        Ok(elementwise(kernel, outputs[0].shape.elements(), operands).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (dy, condition) = (node.dy()?, node.inputs[0]);
        let mut part = |keep, of| {
            let kept = emit.emit(keep, &[dy, condition])?;
            sum_to(emit, kept, of)
        };
        let da = node.when(1, || part(Binary::KeepIf, node.inputs[1]))?;
        let db = node.when(2, || part(Binary::KeepUnless, node.inputs[2]))?;
        Ok(vec![None, da, db])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let condition = model.to_condition(node.input(0));
        Ok(vec![model.node("Where", &[&condition, node.input(1), node.input(2)], &[])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let [condition, a, b] = [inputs[0], inputs[1], inputs[2]];
        let (shape, walk) = self.walk(&[&condition.shape, &a.shape, &b.shape]).expect("checked by infer");
        let pick = |[c, i, j]: [usize; 3]| if condition.data[c] != 0.0 { a.data[i] } else { b.data[j] };
        vec![Reference { shape, data: walk.positions().map(pick).collect() }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |condition: &[usize], a: &[usize], b: &[usize]| Example::new(Where, [condition, a, b]).mask(0);
    vec![case(&[1], &[1], &[1]), case(&[65, 1], &[7], &[65, 7]), case(&[3, 5, 1], &[3, 5, 63], &[5, 1])]
}
