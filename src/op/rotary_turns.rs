//! The angles of rotary position embedding, in exact fixed point: WGSL's own sine and power are too rough for it.

use super::prelude::*;

/// () → u32 [T, D/2]: the angle (first + t) · theta^(−2i/D) in units of 2⁻³² turns, modulo a turn. Input of
/// [`super::Rotary`], for all layers that have the same T, D and theta. With `offset` it is (o u32 \[1\]) → the angles
/// of first + o + t.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotaryTurns {
    /// T.
    pub positions: usize,
    /// The first position, where a part of a sequence is computed.
    pub first: u32,
    /// D: elements of a vector; even.
    pub width: usize,
    /// Base of the wavelengths, above 1; usually 10,000.
    pub theta: f32,
    /// Whether a position to start from is given.
    pub offset: bool,
}

/// `x` · 2⁶⁴.
fn fixed(x: f64) -> u64 {
    (x * 2.0_f64.powi(64)) as u64
}

impl RotaryTurns {
    /// Turns a position at i = 0, and what they are multiplied by from i to i + 1; in units of 2⁻⁶⁴.
    fn steps(&self) -> [u64; 2] {
        [fixed(1.0 / std::f64::consts::TAU), fixed(f64::from(self.theta).powf(-2.0 / self.width as f64))]
    }
}

impl Op for RotaryTurns {
    fn name(&self) -> &'static str {
        "rotary_turns"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let error = |message| Err(Error::shape("rotary", message));
        match inputs {
            [] if !self.offset => {}
            [offset] if self.offset && **offset == TensorType::u32([1]) => {}
            _ if self.offset => return error(format!("expected a position u32[1], got {inputs:?}")),
            _ => return error(format!("expected no input, got {}", inputs.len())),
        }
        if self.positions == 0 || self.width == 0 || !self.width.is_multiple_of(2) {
            let (positions, width) = (self.positions, self.width);
            return error(format!("expected 1 position or more and an even width, got {positions} and {width}"));
        }
        if !(self.theta > 1.0 && self.theta.is_finite()) {
            return error(format!("expected a theta above 1, got {}", self.theta));
        }
        Ok(vec![TensorType::u32([self.positions, self.width / 2])])
    }

    fn lower(&self, _: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let [start, factor] = self.steps();
        let kernel = Kernel::linear(shader!("rotary_turns"), 64)
            .define_if(self.offset, "OFFSET")
            .constant("HALF", self.width / 2)
            .constant("FIRST", self.first)
            .constant("START_HIGH", (start >> 32) as u32)
            .constant("START_LOW", start as u32)
            .constant("FACTOR_HIGH", (factor >> 32) as u32)
            .constant("FACTOR_LOW", factor as u32);
        let operands = if self.offset { vec![input(0), output(0)] } else { vec![output(0)] };
        Ok(elementwise(kernel, outputs[0].shape.elements(), operands).into())
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        if !node.inputs.is_empty() {
            return Err(Error::shape("rotary", "has no ONNX form with a position to start from"));
        }
        let turns = self.reference(&[], &Step::default()).remove(0);
        let values: Vec<i64> = turns.data.iter().map(|&turns| turns as i64).collect();
        Ok(vec![model.integers(turns.shape.dims(), &values)])
    }

    /// The same integers as the kernel's; a test holds them against f64.
    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let first = inputs.first().map_or(self.first, |offset| self.first.wrapping_add(offset.data[0] as u32));
        let [mut turns, factor] = self.steps();
        let (fh, fl) = (factor >> 32, factor & 0xffff_ffff);
        let mut of_pair = Vec::new();
        for _ in 0..self.width / 2 {
            of_pair.push(turns);
            let (th, tl) = (turns >> 32, turns & 0xffff_ffff);
            turns = th * fh + ((th * fl) >> 32) + ((tl * fh) >> 32);
        }
        let half = of_pair.len();
        vec![Reference::from_fn([self.positions, half], |i| {
            let position = first.wrapping_add((i / half) as u32);
            (of_pair[i % half].wrapping_mul(u64::from(position)) >> 32) as f64
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let op = |positions, first, width, theta| RotaryTurns { positions, first, width, theta, offset: false };
    let mut cases: Vec<_> = [op(1, 0, 2, 10_000.0), op(65, 0, 10, 10_000.0), op(131, 60_000, 64, 500_000.0)]
        .into_iter()
        .map(|op| Example::new(op, []))
        .collect();
    let offset = RotaryTurns { offset: true, ..op(3, 5, 14, 10_000.0) };
    cases.push(Example::new(offset, []).labels(&[1], 1000));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_exact_far_from_the_start() {
        let op = RotaryTurns { positions: 3, first: 1_000_000, width: 128, theta: 10_000.0, offset: false };
        let turns = op.reference(&[], &Step::default()).remove(0);
        for (i, turns) in turns.data.iter().enumerate() {
            let angle = (1_000_000 + i / 64) as f64 * 10_000_f64.powf(-2.0 * (i % 64) as f64 / 128.0);
            let off = (angle / std::f64::consts::TAU - turns / 2.0_f64.powi(32)).rem_euclid(1.0);
            assert!(off.min(1.0 - off) < 1e-9, "{i}: off by {off} turns");
        }
    }

    #[test]
    fn errors_name_what_was_given() {
        let op = RotaryTurns { positions: 3, first: 0, width: 5, theta: 1e4, offset: false };
        let message = op.infer(&[]).unwrap_err().to_string();
        assert_eq!(message, "rotary: expected 1 position or more and an even width, got 3 and 5");
        let message = RotaryTurns { width: 4, theta: 1.0, ..op }.infer(&[]).unwrap_err().to_string();
        assert_eq!(message, "rotary: expected a theta above 1, got 1");
    }
}
