//! Cotangent of an embedding's table.

use super::prelude::*;
use super::sum_to::add_parts;

/// (ids u32 [...], dy [..., D]) → dtable [V, D]: for each row the sum of dy over the id's occurrences, in their order,
/// so repeatable.
///
/// The ids are cut into segments of about V. In each, an invocation an id looks for the next and the previous
/// occurrence of the same id; then the first occurrences follow these links and add up rows of dy; last the segments'
/// tables are added. For N ids in segments of L that is N·L comparisons at most (N = 8,192 and V = 50,257: 67 million,
/// less than the product in front of any loss), chains of L links at most, and N/L tables beside the result, which up
/// to V = 32,768 take no more memory than dy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingGrad {
    /// V.
    pub rows: usize,
}

/// Bounds of a segment: shorter ones are not worth a table, longer ones have chains that take too long (and older
/// lavapipe ends a loop after 65,535 iterations).
const SEGMENT: std::ops::RangeInclusive<usize> = 128..=32_768;

impl EmbeddingGrad {
    /// Ids of a segment.
    fn segment(&self, ids: usize) -> usize {
        self.rows.clamp(*SEGMENT.start(), *SEGMENT.end()).min(ids)
    }
}

impl Op for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [ids, dy] = expect_types(self.name(), inputs, [DType::U32, DType::F32])?;
        match dy.shape.dims() {
            [lead @ .., width] if lead == ids.shape.dims() && dy.shape.elements() > 0 && self.rows > 0 => {
                Ok(vec![TensorType::f32([self.rows, *width])])
            }
            _ => {
                let message = format!("expected ids [...] and dy [..., D], got {} and {}", ids.shape, dy.shape);
                Err(Error::shape(self.name(), message))
            }
        }
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (count, table) = (inputs[0].shape.elements(), &outputs[0].shape);
        let segment = self.segment(count);
        let parts = count.div_ceil(segment);
        let constants = |kernel: Kernel| kernel.size("ids", count).size("segment", segment).constant("ROWS", self.rows);
        let tables = if parts == 1 { Operand::Output(0) } else { Operand::Scratch(1) };
        let links = (Operand::Scratch(0), Access::ReadWrite);
        let kernel = constants(Kernel::linear(shader!("embedding_grad_links"), 64));
        let link = elementwise(kernel, count, vec![input(0), links]);
        let clear = Kernel::linear(shader!("embedding_grad_clear"), 64);
        let clear = elementwise(clear, parts * table.elements(), vec![(tables, Access::ReadWrite)]).adding();
        let kernel = constants(Kernel::linear(shader!("embedding_grad"), 64)).constant("COLUMNS", table[1]);
        let operands = vec![input(0), input(1), (Operand::Scratch(0), Access::Read), (tables, Access::ReadWrite)];
        let sum = elementwise(kernel, count * table[1], operands).adding();
        let mut lowering = Lowering { scratch: vec![(count * 8) as u64], launches: vec![link, clear, sum] };
        if parts > 1 {
            lowering.scratch.push((parts * table.elements() * 4) as u64);
            add_parts(&mut lowering, 1, 0, [parts, table.elements()], target)?;
        }
        Ok(lowering)
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (ids, dy) = (inputs[0], inputs[1]);
        let width = dy.shape[dy.shape.rank() - 1];
        let mut table = Reference::zeros([self.rows, width]);
        for (id, dy) in ids.data.iter().zip(dy.data.chunks(width)) {
            let row = (*id as usize).min(self.rows - 1);
            table.data[row * width..][..width].iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        }
        vec![table]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |rows: usize, ids: &[usize], width: usize| {
        let dy = [ids, &[width]].concat();
        let mut example = Example::new(EmbeddingGrad { rows }, [&dy]).labels(ids, rows as u32 + 1);
        example.inputs.swap(0, 1);
        example
    };
    vec![
        case(1, &[1], 1),
        case(131, &[63], 65),
        case(65, &[7, 61], 5), // in segments
        case(2, &[1031], 3),
        case(1000, &[11], 2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_loops_are_bounded() {
        for (rows, ids, width) in [(50_257, 8192, 768), (65, 65_536, 384), (1, 100_000, 8), (200_000, 70_000, 8)] {
            let op = EmbeddingGrad { rows };
            let types = [TensorType::u32([ids]), TensorType::f32([ids, width])];
            let types = [&types[0], &types[1]];
            let table = op.infer(&types).unwrap().remove(0);
            let lowering = op.lower(&types, &[&table], &Target::default()).unwrap();
            assert!(op.segment(ids) < 65_535);
            // A segment that is not full has a table too.
            let scratch = lowering.scratch.get(1).copied().unwrap_or(0);
            let most = types[1].bytes() + table.bytes().max(*SEGMENT.start() * width * 4);
            assert!(scratch <= 3 * most as u64, "{rows} {ids}: {scratch}");
        }
    }
}
