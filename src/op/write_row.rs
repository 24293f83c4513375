//! A row written into a tensor that stays, in place.

use super::prelude::*;

/// (x \[N, .., T, D\], row \[N, .., 1, D\], position u32 \[N\]) → x with x\[n, .., position\[n\], :\] = row\[n, .., 0,
/// :\], in x's own memory: keys and values of a sequence that grows. A position beyond T counts as the last one. It has
/// no gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteRow;

/// x as (N, the dimensions between, T, D).
fn folded(x: &Shape) -> [usize; 4] {
    let dims = x.dims();
    let (front, back) = dims.split_at(dims.len() - 2);
    [front[0], front[1..].iter().product(), back[0], back[1]]
}

impl Op for WriteRow {
    fn name(&self) -> &'static str {
        "write_row"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, row, position] = expect_types(self.name(), inputs, [DType::F32, DType::F32, DType::U32])?;
        let mut one = x.shape.dims().to_vec();
        let rank = one.len();
        if rank >= 3 {
            one[rank - 2] = 1;
        }
        if rank < 3 || x.shape.elements() == 0 || row.shape.dims() != one || position.shape.dims() != [one[0]] {
            let message = format!(
                "expected x [N, .., T, D] that is not empty, row [N, .., 1, D] and position [N], got {}, {} and {}",
                x.shape, row.shape, position.shape
            );
            return Err(Error::shape(self.name(), message));
        }
        Ok(vec![x.clone()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let [_, between, length, width] = folded(&inputs[0].shape);
        let kernel = Kernel::linear(shader!("write_row"), 64)
            .constant("BETWEEN", between)
            .constant("LENGTH", length)
            .constant("WIDTH", width);
        Ok(elementwise(kernel, inputs[1].shape.elements(), vec![input(1), input(2), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let [x, row, position] = [inputs[0], inputs[1], inputs[2]];
        let [_, between, length, width] = folded(&x.shape);
        let mut y = x.clone();
        for (i, &value) in row.data.iter().enumerate() {
            let group = i / width;
            let t = (position.data[group / between] as usize).min(length - 1);
            y.data[(group * length + t) * width + i % width] = value;
        }
        vec![y]
    }

    fn is_in_place(&self) -> bool {
        true
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |dims: &[usize]| {
        let mut one = dims.to_vec();
        one[dims.len() - 2] = 1;
        Example::new(WriteRow, [dims, &one]).labels(&dims[..1], dims[dims.len() - 2] as u32 + 1)
    };
    vec![case(&[1, 1, 1]), case(&[3, 7, 65]), case(&[2, 5, 13, 3]), case(&[1, 2, 3, 31, 64])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_s_row_goes_to_its_position() {
        let x = Reference::from_fn([2, 3, 2], |i| i as f64);
        let row = Reference { shape: [2, 1, 2].into(), data: vec![-1.0, -2.0, -3.0, -4.0] };
        let position = Reference { shape: [2].into(), data: vec![1.0, 9.0] };
        let y = WriteRow.reference(&[&x, &row, &position], &Step::default()).remove(0).data;
        assert_eq!(y, [0.0, 1.0, -1.0, -2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, -3.0, -4.0]);
    }

    #[test]
    fn shapes_are_checked() {
        let types = [TensorType::f32([2, 3, 4]), TensorType::f32([2, 2, 4]), TensorType::u32([2])];
        let error = WriteRow.infer(&types.each_ref()).unwrap_err().to_string();
        assert_eq!(
            error,
            "write_row: expected x [N, .., T, D] that is not empty, row [N, .., 1, D] and position [N], got [2, 3, 4], \
             [2, 2, 4] and [2]"
        );
    }
}
