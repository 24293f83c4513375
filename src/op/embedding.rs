//! Lookup of rows by index: embeddings of tokens, and of positions.

use super::EmbeddingGrad;
use super::gather::within;
use super::prelude::*;

/// (table [V, D], ids u32 [...]) → [..., D]: the table's row of each id. An id of V or more counts as V − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedding;

impl Op for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [table, ids] = expect_types(self.name(), inputs, [DType::F32, DType::U32])?;
        let [_, width] = *table.shape.dims() else {
            return Err(Error::shape(self.name(), format!("expected a table [V, D], got {}", table.shape)));
        };
        if table.shape.elements() == 0 || ids.shape.elements() == 0 {
            let message = format!("expected a table and ids that are not empty, got {} and {}", table.shape, ids.shape);
            return Err(Error::shape(self.name(), message));
        }
        let mut dims = ids.shape.dims().to_vec();
        dims.push(width);
        Ok(vec![TensorType::f32(dims)])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let table = &inputs[0].shape;
        let kernel = Kernel::linear(shader!("embedding"), 64).constant("ROWS", table[0]).constant("COLUMNS", table[1]);
        Ok(elementwise(kernel, outputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (ids, dy) = (node.inputs[1], node.dy()?);
        let rows = emit.shape_of(node.inputs[0])[0];
        Ok(vec![node.when(0, || emit.emit(EmbeddingGrad { rows }, &[ids, dy]))?, None])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let ids = within(model, node, 0)?;
        Ok(vec![model.binary("Gather", node.input(0), &ids)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (table, ids) = (inputs[0], inputs[1]);
        let (rows, width) = (table.shape[0], table.shape[1]);
        let row = |id: f64| (id as usize).min(rows - 1);
        let data = ids.data.iter().flat_map(|&id| &table.data[row(id) * width..][..width]).copied().collect();
        let mut dims = ids.shape.dims().to_vec();
        dims.push(width);
        vec![Reference { shape: dims.into(), data }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    // Ids go beyond the table's last row.
    let case = |table: &[usize], ids: &[usize]| Example::new(Embedding, [table]).labels(ids, table[0] as u32 + 2);
    vec![case(&[1, 1], &[1]), case(&[65, 7], &[5, 13]), case(&[131, 65], &[63]), case(&[3, 2], &[2, 3, 40])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_was_given() {
        let message = |types: &[&TensorType]| Embedding.infer(types).unwrap_err().to_string();
        let (table, ids) = (TensorType::f32([5, 3]), TensorType::u32([2, 7]));
        assert_eq!(Embedding.infer(&[&table, &ids]).unwrap(), [TensorType::f32([2, 7, 3])]);
        assert_eq!(message(&[&table, &table]), "embedding: input 1: expected u32, got f32[5, 3]");
        assert_eq!(message(&[&TensorType::f32([5]), &ids]), "embedding: expected a table [V, D], got [5]");
        assert_eq!(message(&[&table]), "embedding: expected 2 inputs, got 1");
    }
}
