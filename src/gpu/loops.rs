//! Whether all loops of a kernel end, read off naga's form of its source as it is compiled, constants and all. A kernel
//! of which this is known does without wgpu's guard against endless loops, which costs up to a factor of six.
//!
//! **The rule.** A loop counts: it goes on only while `counter + constant < bound` (or `>`), nothing but its advance
//! changes the counter, and the advance moves it towards the bound, by 1 or more, without passing the end of u32. For
//! that, ranges of u32 expressions are derived from constants and `min`; of what is read from memory nothing is known,
//! but for sizes and the step's number of rows, which the host holds to [`LARGEST_SIZE`]. So a bound of any size goes with
//! a step of 1, others need a limit.

use wgpu::naga::front::wgsl;
use wgpu::naga::{
    AddressSpace, Arena, BinaryOperator, Block, Expression, Function, Handle, Literal, LocalVariable, MathFunction,
    Module, Scalar, Statement, Type, TypeInner,
};

use crate::kernel::LARGEST_SIZE;

/// Checks that each loop of a kernel's WGSL source counts: it goes on only while `counter + constant < bound` (or `>`),
/// nothing but its advance changes the counter, and the advance moves it towards the bound without passing the end of
/// u32. Such a kernel ends, and can do without wgpu's guard against endless loops.
///
/// # Errors
/// What is wrong with the first loop that does not; where the source is no WGSL, naga's words.
pub fn check_loops(source: &str) -> Result<(), String> {
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let nothing = Known { module: &module, constants: &[], returned: &[] };
    let constants = nothing.ranges(&module.global_expressions);
    // Callees come before their callers.
    let mut returned = Vec::new();
    let entries = module.entry_points.iter().map(|entry| &entry.function);
    for function in module.functions.iter().map(|(_, function)| function).chain(entries) {
        let known = Known { module: &module, constants: &constants, returned: &returned };
        let ranges = known.ranges(&function.expressions);
        let mut loops = Loops { module: &module, function, ranges, returns: None };
        loops.check(&function.body).map_err(|fault| {
            let name = function.name.as_deref().unwrap_or("main");
            format!("a loop in {name} {fault}")
        })?;
        returned.push(loops.returns.unwrap_or(ANY));
    }
    Ok(())
}

/// What a u32 may be, both ends included.
#[derive(Debug, Clone, Copy)]
struct Range {
    least: u32,
    most: u32,
}

const ANY: Range = Range { least: 0, most: u32::MAX };

impl Range {
    const fn of(value: u32) -> Self {
        Self { least: value, most: value }
    }

    /// What either may be.
    fn or(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    fn min(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.min(other.most) }
    }

    fn max(self, other: Self) -> Self {
        Self { least: self.least.max(other.least), most: self.most.max(other.most) }
    }

    /// `operator` on both; [`ANY`] where it may wrap, or is none of these.
    fn binary(self, operator: BinaryOperator, other: Self) -> Self {
        let ends = match operator {
            BinaryOperator::Add => (self.least.checked_add(other.least), self.most.checked_add(other.most)),
            BinaryOperator::Subtract => (self.least.checked_sub(other.most), self.most.checked_sub(other.least)),
            BinaryOperator::Multiply => (self.least.checked_mul(other.least), self.most.checked_mul(other.most)),
            // WGSL's x / 0 is x, its x % 0 is 0.
            BinaryOperator::Divide => (Some(self.least / other.most.max(1)), Some(self.most / other.least.max(1))),
            BinaryOperator::Modulo if other.least > 0 => (Some(0), Some(self.most.min(other.most - 1))),
            BinaryOperator::Modulo | BinaryOperator::ShiftRight => (Some(0), Some(self.most)),
            BinaryOperator::And => (Some(0), Some(self.most.min(other.most))),
            _ => (None, None),
        };
        match ends {
            (Some(least), Some(most)) => Self { least, most },
            _ => ANY,
        }
    }
}

/// What ranges are derived from, beside the expressions themselves.
struct Known<'a> {
    module: &'a Module,
    /// Of the module's constant expressions.
    constants: &'a [Range],
    /// What functions return.
    returned: &'a [Range],
}

impl Known<'_> {
    /// The ranges of `expressions`, each of which comes after those it is made of; those of other types than u32 mean
    /// nothing.
    fn ranges(&self, expressions: &Arena<Expression>) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::with_capacity(expressions.len());
        for (_, expression) in expressions.iter() {
            let range = self.range(expressions, expression, &ranges);
            ranges.push(range);
        }
        ranges
    }

    fn range(&self, expressions: &Arena<Expression>, expression: &Expression, ranges: &[Range]) -> Range {
        let of = |handle: Handle<Expression>| ranges.get(handle.index()).copied().unwrap_or(ANY);
        match *expression {
            Expression::Literal(Literal::U32(value)) => Range::of(value),
            Expression::ZeroValue(_) => Range::of(0),
            Expression::Constant(constant) => {
                let value = self.module.constants[constant].init.index();
                // Constants among the constant expressions come after what they are made of, too.
                self.constants.get(value).or_else(|| ranges.get(value)).copied().unwrap_or(ANY)
            }
            Expression::Binary { op, left, right } => of(left).binary(op, of(right)),
            Expression::Select { accept, reject, .. } => of(accept).or(of(reject)),
            Expression::Math { fun, arg, arg1: Some(second), arg2, .. } => match (fun, arg2) {
                (MathFunction::Min, _) => of(arg).min(of(second)),
                (MathFunction::Max, _) => of(arg).max(of(second)),
                (MathFunction::Clamp, Some(third)) => of(arg).max(of(second)).min(of(third)),
                _ => ANY,
            },
            Expression::CallResult(function) => self.returned.get(function.index()).copied().unwrap_or(ANY),
            Expression::Load { pointer } if self.is_size(expressions, pointer) => {
                Range { least: 0, most: LARGEST_SIZE }
            }
            _ => ANY,
        }
    }

    /// Whether `pointer` is to one of the uniform's sizes, or to the number of rows in the step's uniform.
    fn is_size(&self, expressions: &Arena<Expression>, pointer: Handle<Expression>) -> bool {
        let Expression::AccessIndex { base, index } = expressions[pointer] else { return false };
        let Expression::GlobalVariable(variable) = expressions[base] else { return false };
        let variable = &self.module.global_variables[variable];
        let TypeInner::Struct { members, .. } = &self.module.types[variable.ty].inner else { return false };
        let name = members.get(index as usize).and_then(|member| member.name.as_deref());
        let known = matches!((variable.name.as_deref(), name), (Some("sizes"), _) | (Some("step"), Some("valid")));
        known && variable.space == AddressSpace::Uniform
    }
}

/// The loops of a function.
struct Loops<'a> {
    module: &'a Module,
    function: &'a Function,
    ranges: Vec<Range>,
    /// What it was seen to return.
    returns: Option<Range>,
}

impl Loops<'_> {
    fn check(&mut self, block: &Block) -> Result<(), &'static str> {
        for statement in block {
            match statement {
                Statement::Block(inner) => self.check(inner)?,
                Statement::If { accept, reject, .. } => {
                    self.check(accept)?;
                    self.check(reject)?;
                }
                Statement::Switch { cases, .. } => cases.iter().try_for_each(|case| self.check(&case.body))?,
                Statement::Loop { body, continuing, .. } => {
                    self.counts(body, continuing)?;
                    self.check(body)?;
                    self.check(continuing)?;
                }
                Statement::Return { value: Some(value) } => {
                    let range = self.ranges[value.index()];
                    self.returns = Some(self.returns.map_or(range, |seen| seen.or(range)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the loop of `body` and `continuing`, which comes after each round, ends by the module's rule.
    fn counts(&self, body: &Block, continuing: &Block) -> Result<(), &'static str> {
        let no_bound = "does not begin with a comparison of its counter with a bound";
        let head = body.iter().position(|statement| !matches!(statement, Statement::Emit(_))).ok_or(no_bound)?;
        let Statement::If { condition, accept, reject } = &body[head] else { return Err(no_bound) };
        if !accept.is_empty() || !matches!(reject[..], [Statement::Break]) {
            return Err(no_bound);
        }
        let Expression::Binary { op, left, right } = self.function.expressions[*condition] else {
            return Err(no_bound);
        };
        let (counter, upwards, bound) = match op {
            BinaryOperator::Less => (left, true, right),
            BinaryOperator::Greater => (left, false, right),
            _ => return Err("goes on by something else than '<' or '>' between its counter and a bound"),
        };
        let plain = self.loaded(counter, &body[..head]);
        // What is added is the same in every round, so the sum counts like the counter, whether it wraps or not.
        let variable = plain.or_else(|| match self.function.expressions[counter] {
            Expression::Binary { op: BinaryOperator::Add, left, right } if upwards => {
                let added = self.ranges[right.index()];
                self.loaded(left, &body[..head]).filter(|_| added.least == added.most)
            }
            _ => None,
        });
        let variable = variable.ok_or(no_bound)?;
        if self.changes(body, variable) > 0 || self.changes(continuing, variable) != 1 {
            return Err("changes its counter beside its advance, or hands it to a function");
        }
        let (op, step) = self.advance(continuing, variable).ok_or("has no advance of its counter by a step")?;
        let (bound, step) = (self.ranges[bound.index()], self.ranges[step.index()]);
        let ends = match op {
            BinaryOperator::Add if upwards && step.least > 0 => {
                // The counter is below the bound when it is advanced.
                if bound.most.saturating_sub(1).checked_add(step.most).is_none() {
                    return Err("may step over the largest u32: its bound needs a limit");
                }
                true
            }
            BinaryOperator::Subtract if !upwards && step.least > 0 => step.most <= bound.least.saturating_add(1),
            BinaryOperator::Divide if !upwards => step.least > 1,
            BinaryOperator::ShiftRight if !upwards => step.least > 0 && step.most < 32,
            _ => false,
        };
        if ends { Ok(()) } else { Err("does not move its counter towards its bound, or by a step that may be 0") }
    }

    /// The u32 variable of which `value` is what `block` itself reads.
    fn loaded(&self, value: Handle<Expression>, block: &[Statement]) -> Option<Handle<LocalVariable>> {
        let Expression::Load { pointer } = self.function.expressions[value] else { return None };
        let Expression::LocalVariable(variable) = self.function.expressions[pointer] else { return None };
        let reads = |statement: &Statement| match statement {
            Statement::Emit(range) => range.clone().any(|handle| handle == value),
            _ => false,
        };
        (self.is_u32(self.function.local_variables[variable].ty) && block.iter().any(reads)).then_some(variable)
    }

    fn is_u32(&self, ty: Handle<Type>) -> bool {
        matches!(self.module.types[ty].inner, TypeInner::Scalar(Scalar::U32))
    }

    fn is(&self, pointer: Handle<Expression>, variable: Handle<LocalVariable>) -> bool {
        matches!(self.function.expressions[pointer], Expression::LocalVariable(other) if other == variable)
    }

    /// How many statements of `block` change `variable`, or may.
    fn changes(&self, block: &[Statement], variable: Handle<LocalVariable>) -> usize {
        let of = |block: &Block| self.changes(block, variable);
        let count = |statement: &Statement| match statement {
            Statement::Block(inner) => of(inner),
            Statement::If { accept, reject, .. } => of(accept) + of(reject),
            Statement::Switch { cases, .. } => cases.iter().map(|case| of(&case.body)).sum(),
            Statement::Loop { body, continuing, .. } => of(body) + of(continuing),
            Statement::Store { pointer, .. } => usize::from(self.is(*pointer, variable)),
            Statement::Call { arguments, .. } => arguments.iter().filter(|&&a| self.is(a, variable)).count(),
            _ => 0,
        };
        block.iter().map(count).sum()
    }

    /// Operator and step with which `block` changes `variable`, each time that it is run.
    fn advance(
        &self,
        block: &[Statement],
        variable: Handle<LocalVariable>,
    ) -> Option<(BinaryOperator, Handle<Expression>)> {
        block.iter().find_map(|statement| match *statement {
            Statement::Store { pointer, value } if self.is(pointer, variable) => {
                let Expression::Binary { op, left, right } = self.function.expressions[value] else { return None };
                (self.loaded(left, block) == Some(variable)).then_some((op, right))
            }
            _ => None,
        })
    }
}
