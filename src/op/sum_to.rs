//! Sums over the dimensions along which a smaller shape would be broadcast: the transpose of broadcasting.

use super::Expand;
use super::broadcast::{Walk, broadcast};
use super::prelude::*;

/// Workgroups that keep a device busy: with fewer, the terms are summed in parts.
const BUSY: usize = 256;

/// Most terms of one partial result: bounds its rounding error, and the iterations of an invocation, of which older
/// lavapipe runs 65,535 at most and then stops without a word.
pub(super) const MAX_TERMS: usize = 16_384;

/// Into how many parts to cut the `terms` of each of `count` results.
pub(super) fn parts(count: usize, terms: usize) -> usize {
    let parts = BUSY.div_ceil(count.div_ceil(64)).min(terms / 256).max(terms.div_ceil(MAX_TERMS)).max(1);
    terms.div_ceil(terms.div_ceil(parts))
}

/// x → the sums of x over the dimensions that `shape` lacks or has as 1. In a fixed order, so repeatable.
#[derive(Debug, Clone)]
pub struct SumTo(pub Shape);

/// `value` summed to the shape of `like`; `value` itself when it has that shape.
pub fn sum_to(emit: &mut dyn Emit, value: ValueId, like: ValueId) -> Result<ValueId> {
    let shape = emit.shape_of(like);
    if emit.shape_of(value) == shape {
        return Ok(value);
    }
    emit.emit(SumTo(shape), &[value])
}

/// Where a kernel leaves its sums of output `index`: there, or in scratch memory for [`summed`] when they are in parts.
pub(super) fn partial(parts: usize, index: usize) -> (Operand, Access) {
    if parts == 1 { output(index) } else { (Operand::Scratch(index), Access::ReadWrite) }
}

/// A launch that leaves its sums where [`partial`] says, and what adds them: `parts` of each of `outputs` outputs of
/// `count` elements.
pub(super) fn summed(launch: Launch, outputs: usize, [parts, count]: [usize; 2], target: &Target) -> Result<Lowering> {
    let mut lowering = Lowering::from(launch);
    if parts > 1 {
        lowering.scratch = vec![(parts * count * 4) as u64; outputs];
        for index in 0..outputs {
            add_parts(&mut lowering, index, index, [parts, count], target)?;
        }
    }
    Ok(lowering)
}

/// The kernel that adds `parts` partial sums of each result, in their order.
pub(super) fn sum_parts(parts: usize) -> Kernel {
    Kernel::linear(shader!("sum_parts"), 64).size("parts", parts)
}

/// Appends the launches that add partial sums, `parts` of each of `count` results in the scratch buffer of index
/// `source`, into the output of index `output`. They may need scratch buffers of their own.
pub(super) fn add_parts(
    lowering: &mut Lowering,
    source: usize,
    output: usize,
    [parts, count]: [usize; 2],
    target: &Target,
) -> Result<()> {
    let first = lowering.scratch.len();
    let (parts, total) = (TensorType::f32([parts, count]), TensorType::f32([count]));
    let sum = SumTo(total.shape.clone()).lower(&[&parts], &[&total], target)?;
    lowering.scratch.extend(sum.scratch);
    lowering.launches.extend(sum.launches.into_iter().map(|mut launch| {
        for operand in &mut launch.operands {
            *operand = match *operand {
                Operand::Input(_) => Operand::Scratch(source),
                Operand::Scratch(index) => Operand::Scratch(first + index),
                Operand::Output(_) => Operand::Output(output),
            };
        }
        launch
    }));
    Ok(())
}

impl SumTo {
    /// The walk along the kept dimensions and along the summed ones, each with x's strides.
    fn walks(&self, x: &Shape) -> Result<(Walk<1>, Walk<1>)> {
        let strides = x.strides();
        let lead = x.rank() - self.0.rank();
        let pick = |kept: bool| {
            let axes: Vec<_> = (0..x.rank()).filter(|&a| kept == (a >= lead && self.0[a - lead] != 1)).collect();
            let along: Vec<_> = axes.iter().map(|&axis| x[axis]).collect();
            let strides = axes.iter().map(|&axis| strides[axis]).collect();
            Walk::merged(self.name(), format_args!("{x} to {}", self.0), &along, [strides])
        };
        Ok((pick(true)?, pick(false)?))
    }
}

impl Op for SumTo {
    fn name(&self) -> &'static str {
        "sum_to"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        if self.0.rank() > x.rank() || broadcast(self.name(), &x, &self.0).ok().as_ref() != Some(&x) {
            return Err(Error::shape(self.name(), format!("{} does not broadcast to {x}", self.0)));
        }
        self.walks(&x)?;
        Ok(vec![TensorType::f32(self.0.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (kept, summed) = self.walks(&inputs[0].shape)?;
        let count = outputs[0].shape.elements();
        let terms: usize = summed.dims.iter().product();
        // Few outputs of many terms each (the bias of a large micro-batch): sum parts first, then the parts.
        let parts = parts(count, terms);
        // Whole rows: what partial sums are.
        if parts == 1 && inputs[0].shape.dims() == [terms, count] && self.0.dims() == [count] {
            return Ok(elementwise(sum_parts(terms), count, vec![input(0), output(0)]).adding().into());
        }
        let launch = |parts: usize, to| {
            let kernel = Kernel::linear(shader!("sum_to"), 64)
                .size("results", count)
                .size("terms", terms)
                .size("chunk", terms.div_ceil(parts));
            let kernel = kept.constants(kernel, ["D1", "D2", "D3"], [["K0", "K1", "K2", "K3"]]);
            let kernel = summed.constants(kernel, ["R1", "R2", "R3"], [["S0", "S1", "S2", "S3"]]);
            elementwise(kernel, count * parts, vec![input(0), to]).adding()
        };
        if parts == 1 {
            return Ok(launch(1, output(0)).into());
        }
        let first = launch(parts, (Operand::Scratch(0), Access::ReadWrite));
        let operands = vec![(Operand::Scratch(0), Access::Read), output(0)];
        let second = elementwise(sum_parts(parts), count, operands).adding();
        Ok(Lowering { scratch: vec![(count * parts * 4) as u64], launches: vec![first, second] })
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        let shape = emit.shape_of(node.inputs[0]);
        Ok(vec![node.when(0, || emit.emit(Expand(shape), &[dy]))?])
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let (x, y) = (&node.inputs[0].dims, &node.outputs[0]);
        let lead = x.len() - y.len();
        let summed = |&axis: &usize| axis < lead || (y[axis - lead] != x[axis]);
        let axes: Vec<usize> = (0..x.len()).filter(summed).collect();
        let mut sum = node.input(0).clone();
        if !axes.is_empty() {
            let axes = model.list(&axes);
            sum = model.binary("ReduceSum", &sum, &axes);
        }
        Ok(vec![if lead == 0 { sum } else { model.reshape(&sum, y)? }])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let x = inputs[0];
        let walk = Walk::new(self.name(), &x.shape, [&self.0]).expect("checked by infer");
        let mut y = Reference::zeros(self.0.clone());
        for (term, [at]) in x.data.iter().zip(walk.positions()) {
            y.data[at] += term;
        }
        vec![y]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |to: &[usize], from: &[usize]| Example::new(SumTo(Shape::from(to.to_vec())), [from]);
    vec![
        case(&[], &[65]),
        case(&[7], &[65, 7]),
        case(&[65, 1], &[65, 7]),
        case(&[5, 1, 1], &[3, 5, 2, 7]),
        case(&[2, 1, 3, 1], &[2, 5, 3, 7]),
        case(&[1], &[1]),
        case(&[130], &[257, 130]),
        case(&[61], &[1031, 61]), // in parts
        case(&[1], &[5003]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_invocation_sums_more_than_old_lavapipe_iterates() {
        for (count, terms) in [(1, 1 << 25), (1 << 15, 1 << 17), (3, 65_537), (1, 1), (64 * 256, 257)] {
            let (from, to) = (TensorType::f32([terms, count]), TensorType::f32([count]));
            let lowering = SumTo(to.shape.clone()).lower(&[&from], &[&to], &Target::default()).unwrap();
            for launch in &lowering.launches {
                let sizes = &launch.kernel.sizes;
                let sums = sizes.iter().find(|(name, _)| ["chunk", "parts"].contains(name)).expect("what one sums").1;
                assert!(sums <= 32_768, "{count} sums of {terms}: {sizes:?}");
            }
        }
    }
}
