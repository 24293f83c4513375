//! Cotangent of what elements were picked from.

use super::Gather;
use super::broadcast::Walk;
use super::gather::{cases, picked, strides_beside};
use super::prelude::*;
use super::sum_to::MAX_TERMS;

/// (index u32, dy) → dx: each element of dx is the sum of dy over the picks that took it, in their order. Each looks at
/// all picks of its line, so the work grows with elements of x times picks along the axis: nothing races, and a result
/// can be repeated bit by bit.
#[derive(Debug, Clone)]
pub struct GatherGrad {
    /// The axis.
    pub axis: usize,
    /// Shape of x.
    pub input: Shape,
}

impl GatherGrad {
    /// The walk of index and dy (both at the first pick) along x, and the position along the axis.
    fn walk(&self, index: &Shape) -> Result<Walk<3>> {
        let dy = picked(self.name(), self.axis, &self.input, index)?;
        let mut position = vec![0; self.input.rank()];
        position[self.axis] = 1;
        let strides = [strides_beside(index, self.axis), strides_beside(&dy, self.axis), position];
        Walk::merged(self.name(), &self.input, self.input.dims(), strides)
    }

    /// Distances between two picks in index and dy.
    fn steps(&self, index: &Shape, dy: &Shape) -> [usize; 2] {
        [index, dy].map(|shape| shape.strides()[self.axis])
    }
}

impl Op for GatherGrad {
    fn name(&self) -> &'static str {
        "gather_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [index, dy] = expect_types(self.name(), inputs, [DType::U32, DType::F32])?;
        let expected = picked(self.name(), self.axis, &self.input, &index.shape)?;
        expect_shape(self.name(), "dy", &expected, &dy.shape)?;
        self.walk(&index.shape)?;
        Ok(vec![TensorType::f32(self.input.clone())])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let (index, dy) = (&inputs[0].shape, &inputs[1].shape);
        let strides = [["I0", "I1", "I2", "I3"], ["Y0", "Y1", "Y2", "Y3"], ["P0", "P1", "P2", "P3"]];
        let kernel = Kernel::linear(shader!("gather_grad"), 64);
        let kernel = self.walk(index)?.constants(kernel, ["D1", "D2", "D3"], strides);
        let [index_step, dy_step] = self.steps(index, dy);
        let kernel = kernel.constant("EXTENT", self.input[self.axis]);
        let kernel = kernel.constant("INDEX_STEP", index_step).constant("DY_STEP", dy_step);
        let picks = index[self.axis];
        // At least one launch, which writes zeros where there are no picks.
        let launch = |first: usize| {
            let end = picks.min(first + MAX_TERMS);
            let kernel = kernel.clone().define_if(first > 0, "FURTHER").constant("FIRST", first).constant("END", end);
            elementwise(kernel, self.input.elements(), vec![input(0), input(1), output(0)])
        };
        let launches = (0..picks.max(1)).step_by(MAX_TERMS).map(launch).collect();
        Ok(Lowering { scratch: vec![], launches })
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (ddx, index) = (node.dy()?, node.inputs[0]);
        Ok(vec![None, node.when(1, || emit.emit(Gather { axis: self.axis }, &[ddx, index]))?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (index, dy) = (inputs[0], inputs[1]);
        let steps = self.steps(&index.shape, &dy.shape);
        let (picks, last) = (index.shape[self.axis], self.input[self.axis] - 1);
        let walk = self.walk(&index.shape).expect("checked by infer");
        let sum = |[i, y, position]: [usize; 3]| {
            let taken = (0..picks).filter(|j| (index.data[i + j * steps[0]] as usize).min(last) == position);
            taken.map(|j| dy.data[y + j * steps[1]]).sum()
        };
        vec![Reference { shape: self.input.clone(), data: walk.positions().map(sum).collect() }]
    }
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(axis, x, index): (usize, Vec<usize>, Vec<usize>)| {
        let (classes, input) = (x[axis] as u32 + 1, Shape::from(x));
        let dy = picked("example", axis, &input, &index.clone().into()).expect("the cases fit");
        let mut example = Example::new(GatherGrad { axis, input }, [dy.dims()]).labels(&index, classes);
        example.inputs.reverse();
        example
    };
    // More picks than one launch adds.
    let many = (0, vec![3, 2], vec![MAX_TERMS + 5, 1]);
    cases().into_iter().chain([many]).map(case).collect()
}
