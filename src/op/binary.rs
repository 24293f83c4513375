//! Elementwise functions of two tensors, broadcast.

use super::Math;
use super::broadcast::{infer_binary, lower_binary, reference_binary};
use super::prelude::*;
use super::sum_to::sum_to;

/// (a, b) → f(a, b), broadcast by NumPy's rules. Comparisons give 1 where they hold, else 0, and have no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a b
    Mul,
    /// a / b
    Div,
    /// The larger one; NaN where one is. Where both are equal, each gets half of the gradient.
    Maximum,
    /// The smaller one; NaN where one is. Where both are equal, each gets half of the gradient.
    Minimum,
    /// a > b
    Greater,
    /// a ≥ b
    GreaterEqual,
    /// a < b
    Less,
    /// a ≤ b
    LessEqual,
    /// a = b
    Equal,
    /// 1 where a > b, ½ where a = b, else 0: a's part in [`Binary::Maximum`].
    Above,
    /// a where b is not 0, else 0 (whatever a is). b has no gradient.
    KeepIf,
    /// a where b is 0, else 0 (whatever a is). b has no gradient.
    KeepUnless,
}

pub use Binary::{Add, Div, Mul, Sub};

impl Binary {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::Maximum,
        Self::Minimum,
        Self::Greater,
        Self::GreaterEqual,
        Self::Less,
        Self::LessEqual,
        Self::Equal,
        Self::Above,
        Self::KeepIf,
        Self::KeepUnless,
    ];

    /// The function's name, for messages, and the definition that selects it in the shader.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Add => ("add", "ADD"),
            Self::Sub => ("sub", "SUB"),
            Self::Mul => ("mul", "MUL"),
            Self::Div => ("div", "DIV"),
            Self::Maximum => ("maximum", "MAXIMUM"),
            Self::Minimum => ("minimum", "MINIMUM"),
            Self::Greater => ("greater", "GREATER"),
            Self::GreaterEqual => ("greater_equal", "GREATER_EQUAL"),
            Self::Less => ("less", "LESS"),
            Self::LessEqual => ("less_equal", "LESS_EQUAL"),
            Self::Equal => ("equal", "EQUAL"),
            Self::Above => ("above", "ABOVE"),
            Self::KeepIf => ("keep_if", "KEEP_IF"),
            Self::KeepUnless => ("keep_unless", "KEEP_UNLESS"),
        }
    }

    fn eval(self, a: f64, b: f64) -> f64 {
        let either_nan = a.is_nan() || b.is_nan();
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / b,
            Self::Maximum | Self::Minimum if either_nan => f64::NAN,
            Self::Maximum => a.max(b),
            Self::Minimum => a.min(b),
            Self::Greater => f64::from(a > b),
            Self::GreaterEqual => f64::from(a >= b),
            Self::Less => f64::from(a < b),
            Self::LessEqual => f64::from(a <= b),
            Self::Equal => f64::from(a == b),
            Self::Above if a == b => 0.5,
            Self::Above => f64::from(a > b),
            Self::KeepIf => {
                if b != 0.0 {
                    a
                } else {
                    0.0
                }
            }
            Self::KeepUnless => {
                if b != 0.0 {
                    0.0
                } else {
                    a
                }
            }
        }
    }

    /// The cotangent of input `index` before it is summed to that input's shape; `None` where there is no gradient.
    fn cotangent(self, index: usize, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Option<ValueId>> {
        let (dy, [a, b]) = (node.dy()?, [node.inputs[0], node.inputs[1]]);
        Ok(Some(match (self, index) {
            (Self::Add, _) | (Self::Sub, 0) => dy,
            (Self::Sub, _) => emit.emit(Math::Neg, &[dy])?,
            (Self::Mul, 0) => emit.emit(Mul, &[dy, b])?,
            (Self::Mul, _) => emit.emit(Mul, &[dy, a])?,
            (Self::Div, 0) => emit.emit(Div, &[dy, b])?,
            (Self::Div, _) => {
                let quotient = emit.emit(Div, &[node.outputs[0], b])?;
                let product = emit.emit(Mul, &[dy, quotient])?;
                emit.emit(Math::Neg, &[product])?
            }
            (Self::Maximum, 0) | (Self::Minimum, 1) => {
                let part = emit.emit(Self::Above, &[a, b])?;
                emit.emit(Mul, &[dy, part])?
            }
            (Self::Maximum | Self::Minimum, _) => {
                let part = emit.emit(Self::Above, &[b, a])?;
                emit.emit(Mul, &[dy, part])?
            }
            (Self::KeepIf | Self::KeepUnless, 0) => emit.emit(self, &[dy, b])?,
            _ => return Ok(None),
        }))
    }
}

impl Op for Binary {
    fn name(&self) -> &'static str {
        "binary"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        infer_binary(self.names().0, inputs)
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        lower_binary(shader!("binary"), self.names().1, inputs, outputs[0])
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let mut cotangents = Vec::with_capacity(2);
        for index in 0..2 {
            let wanted = if node.wanted[index] { self.cotangent(index, emit, node)? } else { None };
            cotangents.push(wanted.map(|dx| sum_to(emit, dx, node.inputs[index])).transpose()?);
        }
        Ok(cotangents)
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let [a, b] = [node.input(0), node.input(1)];
        let compare = |model: &mut Builder, operator: &str| {
            let holds = model.binary(operator, a, b);
            model.to_floats(&holds)
        };
        Ok(vec![match self {
            Self::Add => model.binary("Add", a, b),
            Self::Sub => model.binary("Sub", a, b),
            Self::Mul => model.binary("Mul", a, b),
            Self::Div => model.binary("Div", a, b),
            Self::Maximum => model.binary("Max", a, b),
            Self::Minimum => model.binary("Min", a, b),
            Self::Greater => compare(model, "Greater"),
            Self::GreaterEqual => compare(model, "GreaterOrEqual"),
            Self::Less => compare(model, "Less"),
            Self::LessEqual => compare(model, "LessOrEqual"),
            Self::Equal => compare(model, "Equal"),
            Self::Above => {
                let [above, equal] = ["Greater", "Equal"].map(|operator| compare(model, operator));
                let half = model.with_number("Mul", &equal, 0.5);
                model.binary("Add", &above, &half)
            }
            Self::KeepIf | Self::KeepUnless => {
                let (condition, zero) = (model.to_condition(b), model.number(0.0));
                let [yes, no] = if *self == Self::KeepIf { [a, &zero] } else { [&zero, a] };
                model.node("Where", &[&condition, yes, no], &[])
            }
        }])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![reference_binary(inputs[0], inputs[1], |a, b| self.eval(a, b))]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let shapes: [[&[usize]; 2]; 6] = [
        [&[1], &[1]],
        [&[65, 7], &[7]],
        [&[3, 5, 2, 7], &[5, 1, 1]],
        [&[2, 1, 63], &[3, 1]],
        [&[13], &[5, 1]],
        [&[11, 13], &[11, 13]],
    ];
    let basic = [Add, Mul].into_iter().flat_map(|f| shapes.map(|shapes| Example::new(f, shapes)));
    let away_from_zero = |f| if f == Div { Fill::Positive } else { Fill::Normal };
    let rest = Binary::ALL.into_iter().skip_while(|f| *f == Add).filter(|f| *f != Mul);
    let rest = rest.flat_map(|f| shapes[2..4].iter().map(move |s| Example::new(f, *s).filled(away_from_zero(f))));
    // Equal values and zeros are common there. (A difference quotient at equal values is the mean of both sides, too.)
    let ties = [Binary::Maximum, Binary::Minimum].map(|f| Example::new(f, [&[63], &[3, 1]]).filled(Fill::Whole));
    let masks = Binary::ALL.into_iter().skip_while(|f| *f != Binary::Greater).map(|f| {
        let example = Example::new(f, [&[63], &[3, 1]]).mask(1);
        if matches!(f, Binary::KeepIf | Binary::KeepUnless) { example } else { example.mask(0) }
    });
    basic.chain(rest).chain(ties).chain(masks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_function() {
        let (a, b) = (TensorType::f32([2, 3]), TensorType::f32([2]));
        let error = Binary::LessEqual.infer(&[&a, &b]).unwrap_err();
        assert_eq!(error.to_string(), "less_equal: shapes [2, 3] and [2] do not broadcast together");
    }

    #[test]
    fn what_is_not_kept_does_not_matter() {
        assert_eq!(Binary::KeepIf.eval(f64::NAN, 0.0), 0.0);
        assert_eq!(Binary::KeepUnless.eval(f64::INFINITY, 2.0), 0.0);
        assert!(Binary::Minimum.eval(f64::NAN, 0.0).is_nan());
    }
}
