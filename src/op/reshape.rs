//! Another shape for the same elements.

use super::prelude::*;

/// x → x under the given shape, which has as many elements. A view: nothing is copied.
#[derive(Debug, Clone)]
pub struct Reshape(pub Shape);

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_count(self.name(), 1, inputs)?;
        let x = inputs[0];
        if x.shape.elements() != self.0.elements() {
            let (given, expected) = (x.shape.elements(), self.0.elements());
            let message = format!("{} has {given} elements, {} needs {expected}", x.shape, self.0);
            return Err(Error::shape(self.name(), message));
        }
        Ok(vec![TensorType { shape: self.0.clone(), dtype: x.dtype }])
    }

    fn lower(&self, _: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        Ok(Lowering::default())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let shape = emit.shape_of(node.inputs[0]);
        Ok(vec![node.when(0, || emit.emit(Reshape(shape), &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![model.reshape(node.input(0), &node.outputs[0])?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].reshaped(self.0.clone())]
    }

    fn is_view(&self) -> bool {
        true
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |to: &[usize], from: &[usize]| Example::new(Reshape(Shape::from(to.to_vec())), [from]);
    vec![case(&[], &[1]), case(&[63], &[7, 9]), case(&[5, 13], &[65]), case(&[2, 3, 5], &[15, 2])]
}
