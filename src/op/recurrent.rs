//! Recurrent layers over whole sequences: the steps that depend on one another, in one kernel.

use super::prelude::*;
use super::{MatMul, Pad, RecurrentGrad, Reshape, Slice, SumTo, Transpose};

/// What a step computes, with PyTorch's equations and order of gates; σ is the logistic function, p = weight h + bias
/// the gates' part that comes from h, x the part from the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Long short-term memory (Hochreiter and Schmidhuber, 1997; with forget gates, Gers et al., 2000): i, f, o = σ(x +
    /// p), g = tanh(x + p), c' = f c + i g, h' = o tanh(c'); the gates stand as i, f, g, o.
    Lstm,
    /// Gated recurrent unit (Cho et al., 2014): r, z = σ(x + p), n = tanh(x + r p), h' = (1 − z) n + z h; the gates
    /// stand as r, z, n.
    Gru,
}

impl Cell {
    /// Number of gates.
    pub const fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Numbers a unit and step that the backward pass needs: the gates and c (LSTM), the gates and the p of n (GRU).
    pub(super) const fn kept(self) -> usize {
        self.gates() + 1
    }
}

/// (x [N, T, G H], weight [H, G H], bias [G H]) → h of every step [N, T, H], and what the backward pass needs
/// [N, T, (G + 1) H]; h and c start at 0. G gates of H units stand side by side; `weight` is PyTorch's `weight_hh`
/// transposed. H is 1024 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recurrent(pub Cell);

/// Bound on H: the backward kernel keeps three numbers a unit in workgroup memory, of which every device has 16 KiB.
const MOST_UNITS: usize = 1024;

/// N, T and H.
pub(super) type Sizes = [usize; 3];

impl Cell {
    /// N, T and H of gates (N, T, G H) and h's weights (H, G H); `[H, G H]` or `[G H, H]`.
    pub(super) fn sizes(self, op: &str, gates: &Shape, weight: &Shape) -> Result<Sizes> {
        let &[sequences, length, width] = gates.dims() else {
            return Err(Error::shape(op, format!("expected gates [N, T, {} H], got {gates}", self.gates())));
        };
        let units = width / self.gates();
        if width == 0 || width % self.gates() != 0 || gates.elements() == 0 || weight.elements() != width * units {
            let message =
                format!("gates {gates} and weights {weight} do not make {} gates of some units", self.gates());
            return Err(Error::shape(op, message));
        }
        if units > MOST_UNITS {
            return Err(Error::shape(op, format!("expected at most {MOST_UNITS} hidden units, got {units}")));
        }
        Ok([sequences, length, units])
    }

    /// The launches of `shader` over all steps. `cost` is how many loops over H a unit and step take. One launch does
    /// it, unless its loops came near 65,535 iterations in an invocation: older lavapipe ends them there.
    pub(super) fn launches(
        self,
        shader: Shader,
        [sequences, length, units]: Sizes,
        cost: usize,
        operands: &[(Operand, Access)],
    ) -> Vec<Launch> {
        const MOST_ITERATIONS: usize = 50_000;
        let workgroup = units.next_power_of_two().clamp(32, 256);
        let quads = units.is_multiple_of(4);
        let unroll = if quads { 4 } else { 1 };
        let iterations = cost * (units.div_ceil(workgroup) * (units / unroll + 3) + 2);
        let steps = (MOST_ITERATIONS / iterations).max(1);
        let launch = |first: usize| {
            let kernel = Kernel::linear(shader, workgroup as u32)
                .define_if(self == Self::Gru, "GRU")
                .define_if(quads, "QUADS")
                .define_if(first > 0, "CONTINUES")
                .size("sequences", sequences)
                .constant("LENGTH", length)
                .constant("HIDDEN", units)
                .constant("GATES", self.gates())
                .constant("KEPT", self.kept())
                .constant("UNROLL", unroll)
                .constant("FIRST", first)
                .constant("END", (first + steps).min(length));
            let flops = 2 * sequences * steps.min(length - first) * self.gates() * units * units;
            Launch::new(kernel, operands.to_vec(), sequences).flops(flops)
        };
        (0..length).step_by(steps).map(launch).collect()
    }
}

impl Op for Recurrent {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, weight, bias] = expect_f32(self.name(), inputs)?;
        let [sequences, length, units] = self.0.sizes(self.name(), &x, &weight)?;
        let width = self.0.gates() * units;
        if weight.dims() != [units, width] || bias.dims() != [width] {
            let message = format!("expected a weight [{units}, {width}] and a bias [{width}], got {weight} and {bias}");
            return Err(Error::shape(self.name(), message));
        }
        Ok(vec![
            TensorType::f32([sequences, length, units]),
            TensorType::f32([sequences, length, self.0.kept() * units]),
        ])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let sizes = self.0.sizes(self.name(), &inputs[0].shape, &inputs[1].shape)?;
        let operands = [input(0), input(1), input(2), output(0), output(1)];
        Ok(Lowering { scratch: vec![], launches: self.0.launches(shader!("recurrent"), sizes, 1, &operands) })
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (&[x, weight, _], &[y, kept]) = (node.inputs, node.outputs) else { unreachable!("checked by infer") };
        let &[Some(dy), None] = node.cotangents else {
            return Err(Error::shape(self.name(), "has no backward rule for what it keeps for the backward pass"));
        };
        let [sequences, length, units] = self.0.sizes(self.name(), &emit.shape_of(x), &emit.shape_of(weight))?;
        let width = self.0.gates() * units;
        let rows = emit.emit(Transpose { axes: vec![1, 0] }, &[weight])?;
        let inputs = [kept, rows, dy, y];
        let grad = RecurrentGrad(self.0);
        let grads = emit.emit_all(std::sync::Arc::new(grad), &inputs[..grad.inputs()])?;
        // The gates' part from h has the cotangent of the part from the input, but in the GRU's n.
        let (dx, dp) = (grads[0], grads[grads.len() - 1]);
        let dweight = node.when(1, || {
            let around = vec![[0, 0], [1, 0], [0, 0]];
            let padded = emit.emit(Pad { around, value: 0.0.into() }, &[y])?;
            let before = Slice::along(&emit.shape_of(padded), 1, 0..length);
            let before = emit.emit(before, &[padded])?; // h in front of each step
            let before = emit.emit(Reshape([sequences * length, units].into()), &[before])?;
            let dp = emit.emit(Reshape([sequences * length, width].into()), &[dp])?;
            emit.emit(MatMul { transpose_a: true, ..MatMul::default() }, &[before, dp])
        })?;
        let dbias = node.when(2, || emit.emit(SumTo([width].into()), &[dp]))?;
        Ok(vec![node.wanted[0].then_some(dx), dweight, dbias])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let (gates, weight, bias) = (&node.inputs[0], node.input(1), node.input(2));
        let units = node.extent(1, 0)?;
        let shape = model.shape(&[gates.dims[0], onnx::Dim::Fixed(units)])?;
        let zero = model.number(0.0);
        let start = model.binary("Expand", &zero, &shape);
        let states = if self.0 == Cell::Lstm { vec![&start, &start] } else { vec![&start] };
        let steps = model.scan(&states, &gates.value, |model, states, x| {
            let h = &states[0];
            let part =
                |model: &mut Builder, of: &Value, gate: usize| model.slice(of, 1, gate * units..(gate + 1) * units);
            let p = model.node("Gemm", &[h, weight, bias], &[]);
            let sum = model.binary("Add", x, &p);
            let gate = |model: &mut Builder, function: &str, gate: usize| {
                let part = part(model, &sum, gate);
                model.unary(function, &part)
            };
            match self.0 {
                Cell::Lstm => {
                    let [i, f, o] = [0, 1, 3].map(|number| gate(model, "Sigmoid", number));
                    let g = gate(model, "Tanh", 2);
                    let (kept, new) = (model.binary("Mul", &f, &states[1]), model.binary("Mul", &i, &g));
                    let c = model.binary("Add", &kept, &new);
                    let tanh = model.unary("Tanh", &c);
                    vec![model.binary("Mul", &o, &tanh), c]
                }
                Cell::Gru => {
                    let [r, z] = [0, 1].map(|number| gate(model, "Sigmoid", number));
                    let (x, p) = (part(model, x, 2), part(model, &p, 2));
                    let reset = model.binary("Mul", &r, &p);
                    let sum = model.binary("Add", &x, &reset);
                    let n = model.unary("Tanh", &sum);
                    let difference = model.binary("Sub", h, &n);
                    let kept = model.binary("Mul", &z, &difference);
                    vec![model.binary("Add", &n, &kept)]
                }
            }
        });
        Ok(vec![steps])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, weight, bias) = (inputs[0], inputs[1], inputs[2]);
        let [sequences, length, units] = self.0.sizes(self.name(), &x.shape, &weight.shape).expect("checked by infer");
        let (width, keeps) = (self.0.gates() * units, self.0.kept());
        let mut y = Reference::zeros([sequences, length, units]);
        let mut kept = Reference::zeros([sequences, length, keeps * units]);
        for row in 0..sequences * length {
            let first = row % length == 0;
            let before = |at: &Reference, per_row: usize, i: usize| {
                if first { 0.0 } else { at.data[(row - 1) * per_row + i] }
            };
            for unit in 0..units {
                let from_x = |gate: usize| x.data[row * width + gate * units + unit];
                let from_h = |gate: usize| {
                    let column = gate * units + unit;
                    let sum: f64 = (0..units).map(|k| before(&y, units, k) * weight.data[k * width + column]).sum();
                    sum + bias.data[column]
                };
                let gate = |gate: usize| sigmoid(from_x(gate) + from_h(gate));
                let (h, keep) = match self.0 {
                    Cell::Lstm => {
                        let (i, f, o) = (gate(0), gate(1), gate(3));
                        let g = (from_x(2) + from_h(2)).tanh();
                        let c = f * before(&kept, keeps * units, 4 * units + unit) + i * g;
                        (o * c.tanh(), vec![i, f, g, o, c])
                    }
                    Cell::Gru => {
                        let (r, z, m) = (gate(0), gate(1), from_h(2));
                        let n = (from_x(2) + r * m).tanh();
                        ((1.0 - z) * n + z * before(&y, units, unit), vec![r, z, n, m])
                    }
                };
                y.data[row * units + unit] = h;
                for (index, value) in keep.into_iter().enumerate() {
                    kept.data[(row * keeps + index) * units + unit] = value;
                }
            }
        }
        vec![y, kept]
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn examples() -> Vec<Example> {
    let case = |cell: Cell, [sequences, length, units]: Sizes| {
        let width = cell.gates() * units;
        Example::new(Recurrent(cell), [&[sequences, length, width], &[units, width], &[width]]).weights(1)
    };
    // Quads and single units, more units than invocations, and so many iterations that it takes two launches.
    let sizes = [[1, 1, 1], [3, 5, 7], [2, 6, 12], [65, 2, 3], [1, 3, 260], [1, 740, 63]];
    [Cell::Lstm, Cell::Gru].into_iter().flat_map(|cell| sizes.map(|sizes| case(cell, sizes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::expect::refusal;

    fn launches(sizes: Sizes, cost: usize) -> Vec<Launch> {
        Cell::Lstm.launches(shader!("recurrent"), sizes, cost, &[])
    }

    #[test]
    fn long_sequences_take_several_launches_that_cover_every_step_once() {
        assert_eq!(launches([8, 100, 128], 1).len(), 1);
        assert_eq!(launches([8, 100, 128], 4).len(), 1);
        let many = launches([8, 3000, 1024], 4);
        assert!(many.len() > 1);
        let bound = |launch: &Launch, name| {
            let value = launch.kernel.constants.iter().find(|(n, _)| *n == name).expect("a constant").1;
            let crate::kernel::Constant::U32(value) = value else { panic!("a whole number") };
            value
        };
        let bounds: Vec<_> = many.iter().map(|launch| (bound(launch, "FIRST"), bound(launch, "END"))).collect();
        assert!(bounds.windows(2).all(|pair| pair[0].1 == pair[1].0), "{bounds:?}");
        assert_eq!((bounds[0].0, bounds[bounds.len() - 1].1), (0, 3000));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let error = |x: &[usize], weight: &[usize], bias: &[usize]| refusal(&Recurrent(Cell::Gru), &[x, weight, bias]);
        assert_eq!(
            error(&[2, 3, 8], &[2, 6], &[6]),
            "recurrent: gates [2, 3, 8] and weights [2, 6] do not make 3 gates of some units"
        );
        assert_eq!(
            error(&[2, 3, 6], &[6, 2], &[6]),
            "recurrent: expected a weight [2, 6] and a bias [6], got [6, 2] and [6]"
        );
        assert_eq!(
            error(&[1, 1, 3075], &[1025, 3075], &[3075]),
            "recurrent: expected at most 1024 hidden units, got 1025"
        );
    }
}
