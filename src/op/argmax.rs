//! Position of the largest element along an axis.

use super::axis::{Axis, resized};
use super::prelude::*;
use super::sum_to::parts;

/// x → u32 positions along `axis`, which the result keeps with extent 1: of the first of several largest elements, or
/// of the first NaN. It has no gradient; [`super::reduce`] has the forms over several axes and the maximum itself.
#[derive(Debug, Clone, Copy)]
pub struct Argmax {
    /// The axis.
    pub axis: usize,
}

impl Argmax {
    fn axis(&self, x: &Shape) -> Result<Axis> {
        let axis = Axis::of(self.name(), x, self.axis)?;
        if axis.extent == 0 {
            let message = format!("expected an axis that is not empty, got axis {} of {x}", self.axis);
            return Err(Error::shape(self.name(), message));
        }
        Ok(axis)
    }
}

impl Op for Argmax {
    fn name(&self) -> &'static str {
        "argmax"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        self.axis(&x)?;
        Ok(vec![TensorType::u32(resized(&x, self.axis, 1))])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let axis = self.axis(&inputs[0].shape)?;
        let lines = outputs[0].shape.elements();
        let parts = parts(lines, axis.extent);
        let kernel = axis.constants(Kernel::linear(shader!("argmax"), 64)).size("lines", lines);
        let first = |to| {
            let kernel = kernel.clone().size("chunk", axis.extent.div_ceil(parts));
            elementwise(kernel, lines * parts, vec![input(0), to])
        };
        if parts == 1 {
            return Ok(first(output(0)).into());
        }
        // The winners of parts of a line first, then the winner among them.
        let winners = first((Operand::Scratch(0), Access::ReadWrite));
        let operands = vec![input(0), (Operand::Scratch(0), Access::Read), output(0)];
        let last = elementwise(kernel.clone().define("PARTS").size("chunk", parts), lines, operands);
        Ok(Lowering { scratch: vec![(4 * lines * parts) as u64], launches: vec![winners, last] })
    }

    fn backward(&self, _: &mut dyn Emit, _: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Ok(vec![None])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        Ok(vec![model.node("ArgMax", &[node.input(0)], &[("axis", self.axis.into())])])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let axis = self.axis(&x.shape).expect("checked by infer");
        let wins = |v: f64, best: f64| !best.is_nan() && (v.is_nan() || v > best);
        vec![Reference::from_fn(resized(&x.shape, self.axis, 1), |line| {
            let at = |k: usize| x.data[axis.start(line) + k * axis.inner];
            (1..axis.extent).fold(0, |best, k| if wins(at(k), at(best)) { k } else { best }) as f64
        })]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |axis, shape: &[usize]| Example::new(Argmax { axis }, [shape]);
    let ties = |axis, shape: &[usize]| case(axis, shape).filled(Fill::Whole);
    vec![
        case(0, &[1]),
        case(1, &[65, 7]),
        case(0, &[63, 13]),
        case(1, &[3, 33, 5]),
        ties(1, &[7, 11, 3]),
        ties(0, &[5003]), // in parts
        case(0, &[1031, 61]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_maximum_and_the_first_nan_win() {
        let argmax = |data: Vec<f64>| {
            let x = Reference { shape: [data.len()].into(), data };
            Argmax { axis: 0 }.reference(&[&x], &Step::default()).remove(0).data[0]
        };
        assert_eq!(argmax(vec![1.0, 3.0, 3.0]), 1.0);
        assert_eq!(argmax(vec![1.0, f64::NAN, 3.0, f64::NAN]), 1.0);
    }

    #[test]
    fn axes_are_checked() {
        let error = Argmax { axis: 2 }.infer(&[&TensorType::f32([2, 3])]).unwrap_err();
        assert_eq!(error.to_string(), "argmax: expected an axis below 2 for [2, 3], got 2");
    }
}
