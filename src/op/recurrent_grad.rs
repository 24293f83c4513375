//! Cotangents of a recurrent layer's gates.

use super::prelude::*;
use super::recurrent::Cell;

/// (kept [N, T, (G + 1) H], weight [G H, H], dh [N, T, H]) → the cotangent of the gates' part from the input [N, T, G
/// H]; of a GRU with h [N, T, H] as a fourth input, and a second output, the cotangent of the gates' part from h.
/// `kept` and h are [`super::Recurrent`]'s outputs, `weight` is PyTorch's `weight_hh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecurrentGrad(pub Cell);

impl RecurrentGrad {
    /// N, T and H.
    fn sizes(&self, dy: &Shape, weight: &Shape) -> Result<[usize; 3]> {
        let &[sequences, length, units] = dy.dims() else {
            return Err(Error::shape(self.name(), format!("expected dh [N, T, H], got {dy}")));
        };
        self.0.sizes(self.name(), &[sequences, length, self.0.gates() * units].into(), weight)
    }

    /// Number of inputs: kept, weight, dh and, of a GRU, h.
    pub(super) fn inputs(&self) -> usize {
        if self.0 == Cell::Gru { 4 } else { 3 }
    }
}

impl Op for RecurrentGrad {
    fn name(&self) -> &'static str {
        "recurrent_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_all_f32(self.name(), self.inputs(), inputs)?;
        let (kept, weight, dy) = (&inputs[0].shape, &inputs[1].shape, &inputs[2].shape);
        let [sequences, length, units] = self.sizes(dy, weight)?;
        if kept.dims() != [sequences, length, self.0.kept() * units] {
            let message = format!("expected kept values [N, T, {} H] for dh {dy}, got {kept}", self.0.kept());
            return Err(Error::shape(self.name(), message));
        }
        let gates = TensorType::f32([sequences, length, self.0.gates() * units]);
        match inputs.get(3) {
            Some(y) => expect_equal_shapes(self.name(), &y.shape, dy).map(|()| vec![gates; 2]),
            None => Ok(vec![gates]),
        }
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let sizes = self.sizes(&inputs[2].shape, &inputs[1].shape)?;
        let carry = (Operand::Scratch(0), Access::ReadWrite);
        let mut operands = vec![input(0), input(1), input(2), carry, output(0)];
        if self.0 == Cell::Gru {
            operands.extend([input(3), output(1)]);
        }
        let launches = self.0.launches(shader!("recurrent_grad"), sizes, self.0.gates() + 1, &operands);
        Ok(Lowering { scratch: vec![(sizes[0] * 2 * sizes[2] * size_of::<f32>()) as u64], launches })
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (kept, weight, dy) = (inputs[0], inputs[1], inputs[2]);
        let [sequences, length, units] = self.sizes(&dy.shape, &weight.shape).expect("checked by infer");
        let (gates, keeps) = (self.0.gates(), self.0.kept());
        let mut dx = Reference::zeros([sequences, length, gates * units]);
        let mut dp = dx.clone();
        for sequence in 0..sequences {
            let (mut dh, mut dc) = (vec![0.0; units], vec![0.0; units]);
            for row in (0..length).rev().map(|t| sequence * length + t) {
                let first = row % length == 0;
                for unit in 0..units {
                    let keep = |index: usize| kept.data[(row * keeps + index) * units + unit];
                    let d = dy.data[row * units + unit] + dh[unit];
                    let (of_x, of_p) = match self.0 {
                        Cell::Lstm => {
                            let (i, f, g, o, bent) = (keep(0), keep(1), keep(2), keep(3), keep(4).tanh());
                            let c = if first { 0.0 } else { kept.data[((row - 1) * keeps + 4) * units + unit] };
                            let d_c = dc[unit] + d * o * (1.0 - bent * bent);
                            dc[unit] = d_c * f;
                            dh[unit] = 0.0;
                            let d_i = d_c * g * i * (1.0 - i);
                            let d_f = d_c * c * f * (1.0 - f);
                            let all = [d_i, d_f, d_c * i * (1.0 - g * g), d * bent * o * (1.0 - o)];
                            (all, all)
                        }
                        Cell::Gru => {
                            let (r, z, n, m) = (keep(0), keep(1), keep(2), keep(3));
                            let h = if first { 0.0 } else { inputs[3].data[(row - 1) * units + unit] };
                            let d_n = d * (1.0 - z) * (1.0 - n * n);
                            let (d_r, d_z) = (d_n * m * r * (1.0 - r), d * (h - n) * z * (1.0 - z));
                            dh[unit] = d * z;
                            ([d_r, d_z, d_n, 0.0], [d_r, d_z, d_n * r, 0.0])
                        }
                    };
                    for gate in 0..gates {
                        dx.data[(row * gates + gate) * units + unit] = of_x[gate];
                        dp.data[(row * gates + gate) * units + unit] = of_p[gate];
                    }
                }
                for (unit, dh) in dh.iter_mut().enumerate() {
                    let columns = 0..gates * units;
                    *dh +=
                        columns.map(|j| dp.data[row * gates * units + j] * weight.data[j * units + unit]).sum::<f64>();
                }
            }
        }
        if self.0 == Cell::Gru { vec![dx, dp] } else { vec![dx] }
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |cell: Cell, [sequences, length, units]: [usize; 3]| {
        let (rows, kept) = ([sequences, length, units], [sequences, length, cell.kept() * units]);
        let weight = [cell.gates() * units, units];
        let mut example = Example::new(RecurrentGrad(cell), [&kept, &weight, &rows, &rows]).weights(1);
        example.inputs.truncate(RecurrentGrad(cell).inputs());
        // Gates lie between 0 and 1: larger ones would let the carried cotangents grow from step to step.
        example.inputs[0].1 = Fill::Weights;
        example
    };
    let sizes = [[1, 1, 1], [3, 5, 7], [2, 6, 12], [1, 3, 260], [2, 190, 63]];
    [Cell::Lstm, Cell::Gru].into_iter().flat_map(|cell| sizes.map(|sizes| case(cell, sizes))).collect()
}
