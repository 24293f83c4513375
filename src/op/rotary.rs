//! Rotary position embedding.

use super::prelude::*;

/// (x [N, T, J, D], turns u32 [T, D/2]) → x with the first `vectors` of the J vectors at each position t rotated, each
/// pair of elements by its angle `turns[t, i]` (Su et al., "RoFormer", 2021). The gradient is the rotation back.
///
/// The i-th pair is elements i and i + D/2 (half-split, as in GPT-NeoX and Llama); `interleaved`: 2i and 2i + 1 (as in
/// RoFormer and GPT-J). [B, H, T, D] is rotated as [B·H, T, 1, D]; of packed queries, keys and values [B, T, 3·H, D]
/// the first 2·H vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotary {
    /// Vectors at a position that are rotated; the others are copied.
    pub vectors: usize,
    /// Whether pairs are neighbours.
    pub interleaved: bool,
    /// Whether angles count the other way.
    pub inverse: bool,
}

impl Rotary {
    /// The position of a pair's elements in their vector.
    fn pair(&self, i: usize, half: usize) -> [usize; 2] {
        if self.interleaved { [2 * i, 2 * i + 1] } else { [i, i + half] }
    }
}

impl Op for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, turns] = expect_types(self.name(), inputs, [DType::F32, DType::U32])?;
        let [_, positions, vectors, width] = *x.shape.dims() else {
            return Err(Error::shape(self.name(), format!("expected x [N, T, J, D], got {}", x.shape)));
        };
        if x.shape.elements() == 0 || width % 2 != 0 {
            let message = format!("expected x that is not empty and of an even width, got {}", x.shape);
            return Err(Error::shape(self.name(), message));
        }
        if turns.shape.dims() != [positions, width / 2] {
            let message = format!("expected turns [{positions}, {}] for x {}, got {}", width / 2, x.shape, turns.shape);
            return Err(Error::shape(self.name(), message));
        }
        if self.vectors > vectors {
            let message = format!("expected at most {vectors} vectors to rotate, got {}", self.vectors);
            return Err(Error::shape(self.name(), message));
        }
        Ok(vec![x.clone()])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let x = &inputs[0].shape;
        let kernel = Kernel::linear(shader!("rotary"), 64)
            .constant("POSITIONS", x[1])
            .constant("J", x[2])
            .constant("VECTORS", self.vectors)
            .constant("HALF", x[3] / 2)
            .constant("SIGN", if self.inverse { -1.0 } else { 1.0 })
            .define_if(self.interleaved, "INTERLEAVED");
        Ok(elementwise(kernel, x.elements() / 2, vec![input(0), input(1), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (dy, turns) = (node.dy()?, node.inputs[1]);
        let back = Self { inverse: !self.inverse, ..*self };
        Ok(vec![node.when(0, || emit.emit(back, &[dy, turns]))?, None])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let (positions, all, width) = (node.extent(0, 1)?, node.extent(0, 2)?, node.extent(0, 3)?);
        let (half, x) = (width / 2, node.input(0));
        // The elements of pairs, first ones in front.
        let order: Vec<usize> =
            [0, 1].into_iter().flat_map(|e| (0..half).map(move |i| self.pair(i, half)[e])).collect();
        let mut back: Vec<usize> = (0..width).collect();
        back.sort_by_key(|&at| order[at]);
        let arranged = |model: &mut Builder, x: &Value, order: &[usize]| match self.interleaved {
            true => {
                let order = model.list(order);
                model.node("Gather", &[x, &order], &[("axis", 3.into())])
            }
            false => x.clone(),
        };
        let turns = model.to_floats(node.input(1));
        let sign = if self.inverse { -1.0 } else { 1.0 };
        let angles = model.with_number("Mul", &turns, sign * std::f32::consts::TAU / 4_294_967_296.0);
        let [cos, sin] = ["Cos", "Sin"].map(|function| model.unary(function, &angles));
        let along = [positions, 1, half].map(onnx::Dim::Fixed);
        let (cos, sin) = (model.reshape(&cos, &along)?, model.reshape(&sin, &along)?);
        let rotated = model.slice(x, 2, 0..self.vectors);
        let rotated = arranged(model, &rotated, &order);
        let (a, b) = (model.slice(&rotated, 3, 0..half), model.slice(&rotated, 3, half..width));
        let [ac, bs, as_, bc] =
            [(&a, &cos), (&b, &sin), (&a, &sin), (&b, &cos)].map(|(x, f)| model.binary("Mul", x, f));
        let (a, b) = (model.binary("Sub", &ac, &bs), model.binary("Add", &as_, &bc));
        let rotated = model.node("Concat", &[&a, &b], &[("axis", 3.into())]);
        let mut y = arranged(model, &rotated, &back);
        if self.vectors < all {
            let rest = model.slice(x, 2, self.vectors..all);
            y = model.node("Concat", &[&y, &rest], &[("axis", 2.into())]);
        }
        Ok(vec![y])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (x, turns) = (inputs[0], inputs[1]);
        let (positions, vectors, half) = (x.shape[1], x.shape[2], x.shape[3] / 2);
        let mut y = x.clone();
        for (index, y) in y.data.chunks_mut(2 * half).enumerate().filter(|(v, _)| v % vectors < self.vectors) {
            for i in 0..half {
                let turn = turns.data[index / vectors % positions * half + i] / 2.0_f64.powi(32);
                let angle = turn * std::f64::consts::TAU;
                let (sin, cos) = if self.inverse { (-angle).sin_cos() } else { angle.sin_cos() };
                let [a, b] = self.pair(i, half);
                (y[a], y[b]) = (y[a] * cos - y[b] * sin, y[a] * sin + y[b] * cos);
            }
        }
        vec![y]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |vectors, interleaved, x: [usize; 4]| {
        let op = Rotary { vectors, interleaved, inverse: interleaved };
        Example::new(op, [&x]).labels(&[x[1], x[3] / 2], u32::MAX)
    };
    vec![
        case(1, false, [1, 1, 1, 2]),
        case(1, false, [3, 65, 1, 10]),
        case(4, false, [2, 7, 6, 64]),
        case(5, true, [2, 13, 5, 6]),
        case(2, true, [1, 63, 3, 34]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::RotaryTurns;

    #[test]
    fn products_depend_on_distances_alone() {
        let turns = RotaryTurns { positions: 9, first: 0, width: 6, theta: 100.0, offset: false };
        let turns = turns.reference(&[], &Step::default()).remove(0);
        for interleaved in [false, true] {
            let op = Rotary { vectors: 1, interleaved, inverse: false };
            let rotated = |v: [f64; 6]| {
                let x = Reference::from_fn([1, 9, 1, 6], |i| v[i % 6]);
                op.reference(&[&x, &turns], &Step::default()).remove(0).data
            };
            let (q, k) = (rotated([1.0, 2.0, -3.0, 0.5, 4.0, -1.0]), rotated([0.3, -1.0, 2.0, 5.0, 1.0, 1.5]));
            let product = |i: usize, j: usize| (0..6).map(|c| q[6 * i + c] * k[6 * j + c]).sum::<f64>();
            assert!((product(8, 5) - product(3, 0)).abs() < 1e-7);
            assert!((product(8, 5) - product(8, 4)).abs() > 1e-2);
        }
    }

    #[test]
    fn errors_name_what_was_given() {
        let op = Rotary { vectors: 4, interleaved: false, inverse: false };
        let message = |x: [usize; 4], turns: [usize; 2]| {
            op.infer(&[&TensorType::f32(x), &TensorType::u32(turns)]).unwrap_err().to_string()
        };
        assert_eq!(message([2, 3, 4, 6], [3, 6]), "rotary: expected turns [3, 3] for x [2, 3, 4, 6], got [3, 6]");
        assert_eq!(message([2, 3, 2, 6], [3, 3]), "rotary: expected at most 2 vectors to rotate, got 4");
    }
}
