//! The kernels that the self-test runs: the shapes on which real cards have computed wrongly (more than 500 rows, sizes
//! beside the tiles, more workgroups than one dimension takes), few and small enough for a software adapter at start.

use crate::error::Result;
use crate::graph::Graph;
use crate::kernel::Step;
use crate::op::{
    Activation, Add, BatchNorm, BatchNormGrad, Conv2d, Conv2dGradBias, Conv2dGradInput, Conv2dGradWeight, Dropout,
    Emit, Example, Fill, MatMul, MaxPool2d, MaxPool2dGrad, Pool, Reference, Softmax, SoftmaxCrossEntropy,
    SoftmaxCrossEntropyGrad, SoftmaxGrad, SumTo, Transpose, WeightedSum,
};
use crate::tensor::HostTensor;

/// One op on one set of inputs.
pub(super) struct Case {
    pub(super) example: Example,
    pub(super) tensors: Vec<HostTensor>,
    /// The rows of the result that are computed in f64 as well; all where there are none.
    rows: Option<Vec<usize>>,
}

impl Case {
    fn all(example: Example) -> Self {
        Self { tensors: example.tensors(SEED), example, rows: None }
    }

    /// Checks every `stride`-th row and the last one: for an op whose rows depend on the first input's only in their
    /// own.
    fn rows(example: Example, stride: usize) -> Self {
        let count = example.inputs[0].0.shape[0];
        let rows = (0..count - 1).step_by(stride).chain([count - 1]).collect();
        Self { rows: Some(rows), ..Self::all(example) }
    }

    /// The op with its input shapes, for messages.
    pub(super) fn label(&self) -> String {
        let shapes: Vec<_> = self.example.inputs.iter().map(|(ty, _)| ty.shape.to_string()).collect();
        format!("{} of {}", self.example.op.name(), shapes.join(", "))
    }

    /// Adds the op to `graph`, its inputs and its output as the graph's.
    pub(super) fn append(&self, graph: &mut Graph) -> Result<()> {
        let label = self.label();
        let inputs: Vec<_> = self.example.inputs.iter().map(|(ty, _)| graph.input(&label, ty.clone())).collect();
        let outputs = graph.emit_all(self.example.op.clone(), &inputs)?;
        graph.output(&label, outputs[0]);
        Ok(())
    }

    /// (position in the result, right value) of every element that is checked.
    pub(super) fn expected(&self, step: &Step) -> Vec<(usize, f64)> {
        let mut inputs: Vec<Reference> = self.tensors.iter().map(Reference::from).collect();
        if let Some(rows) = &self.rows {
            inputs[0] = taken(&inputs[0], rows);
        }
        let result = self.example.op.reference(&inputs.iter().collect::<Vec<_>>(), step).remove(0);
        let Some(rows) = &self.rows else { return result.data.into_iter().enumerate().collect() };
        let width = result.data.len() / rows.len();
        result.data.into_iter().enumerate().map(|(i, value)| (rows[i / width] * width + i % width, value)).collect()
    }
}

/// These rows of `tensor`.
fn taken(tensor: &Reference, rows: &[usize]) -> Reference {
    let width = tensor.data.len() / tensor.shape[0];
    let mut shape = tensor.shape.dims().to_vec();
    shape[0] = rows.len();
    Reference::from_fn(shape, |i| tensor.data[rows[i / width] * width + i % width])
}

const SEED: u64 = 5;

/// The self-test's cases.
pub(super) fn cases() -> Vec<Case> {
    let plain = MatMul::default();
    let dense = MatMul { bias: true, activation: Some(Activation::Gelu), ..plain };
    let (nt, tn) = (MatMul { transpose_b: true, ..plain }, MatMul { transpose_a: true, ..plain });
    let conv = Conv2d { stride: [2, 1], padding: [1; 4], ..Conv2d::default() };
    let biased = Conv2d { activation: Some(Activation::Relu), ..conv };
    let (x, weight, y) = ([3, 5, 13, 9], [17, 5, 3, 3], [3, 17, 7, 9]);
    let pool = Pool { kernel: [3, 2], stride: [2, 2], padding: [1, 1, 0, 0] };
    let pooled = [3, 5, 7, 4];
    let norm = BatchNorm { group: 3, epsilon: 1e-5, affine: true };
    let grad = BatchNormGrad { group: 3, epsilon: 1e-5, affine: true };
    let mut norm_grad = Example::new(grad, [&[6, 5, 13, 9][..], &[2, 5, 2], &[6, 5, 13, 9], &[2, 5], &[2, 5], &[5]]);
    norm_grad.inputs[1].1 = Fill::Positive; // means and variances
    let mut cross_entropy_grad = Example::new(SoftmaxCrossEntropyGrad::default(), [&[65, 11], &[65]]).labels(&[65], 11);
    cross_entropy_grad.inputs.swap(1, 2); // (logits, labels, dloss)
    let planes = MaxPool2dGrad { pool, input: x.into() };
    let mut max_pool_grad = Example::new(planes, [&pooled]).labels(&pooled, (x[2] * x[3]) as u32);
    max_pool_grad.inputs.swap(0, 1); // (positions, dy)
    vec![
        Case::all(Example::new(dense, [&[521, 97], &[97, 66], &[66]])),
        Case::rows(Example::new(plain, [&[257, 384], &[384, 131]]), 7),
        Case::all(Example::new(plain, [&[5, 97], &[97, 66]])),
        Case::all(Example::new(nt, [&[66, 10], &[131, 10]])),
        Case::all(Example::new(tn, [&[1031, 17], &[1031, 10]])),
        Case::all(Example::new(Softmax, [&[67, 259]])),
        Case::all(Example::new(SoftmaxGrad { of: Softmax }, [&[67, 259], &[67, 259]])),
        Case::all(Example::new(SoftmaxCrossEntropy::default(), [&[65, 11]]).labels(&[65], 11)),
        Case::all(cross_entropy_grad),
        Case::all(Example::new(WeightedSum, [&[1031], &[1031]])),
        Case::all(Example::new(SumTo([65].into()), [&[1031, 65]])),
        Case::all(Example::new(Transpose { axes: vec![1, 0] }, [&[300, 70]])),
        // 4,214,809 elements: more than 65,535 workgroups of 64.
        Case::rows(Example::new(Add, [&[2053, 1], &[1, 2053]]), 16),
        Case::all(Example::new(biased, [&x, &weight, &[weight[0]]])),
        Case::all(Example::new(Conv2dGradInput { conv, input: x.into() }, [&weight, &y])),
        Case::all(Example::new(Conv2dGradWeight { conv, weight: weight.into() }, [&x, &y])),
        Case::all(Example::new(Conv2dGradBias, [&y])),
        // Two groups.
        Case::all(Example::new(norm, [&[6, 5, 13, 9], &[5], &[5]])),
        Case::all(norm_grad),
        Case::all(Example::new(MaxPool2d(pool), [&x])),
        Case::all(max_pool_grad),
        // Away from zero, so that every bit of the mask shows.
        Case::all(Example::new(Dropout { probability: 0.3, site: 2 }, [&[63, 65]]).filled(Fill::Positive)),
    ]
}
