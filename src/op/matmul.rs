//! Matrix products, batched, with an optional bias and activation in the same kernel.

use super::activation_grad::ActivationGrad;
use super::broadcast::{MAX_RANK, Walk, broadcast};
use super::prelude::*;
use super::sum_to::{sum_parts, sum_to};
use super::{Activation, Reshape, SumTo};
use crate::kernel::tile::{Product, Tile};

/// (a, b) or (a, b, bias) → f(a·b + bias).
///
/// a is [..., M, K], or [..., K, M] with `transpose_a`; b is [..., K, N], or [..., N, K] with `transpose_b`; the
/// leading dimensions broadcast by NumPy's rules, so that one matrix serves a whole batch. The bias is \[N\], the
/// result [..., M, N].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatMul {
    /// Whether a is stored transposed.
    pub transpose_a: bool,
    /// Whether b is stored transposed.
    pub transpose_b: bool,
    /// Whether there is a third input, added to every row.
    pub bias: bool,
    /// f; the identity where there is none.
    pub activation: Option<Activation>,
}

/// The sizes of a product, after folding.
struct Sizes {
    /// Leading dimensions of the result, and of both operands.
    batch: Shape,
    a_batch: Shape,
    b_batch: Shape,
    m: usize,
    k: usize,
    n: usize,
}

impl MatMul {
    /// The plain product of this op's operands: no bias, no activation.
    fn plain(transpose_a: bool, transpose_b: bool) -> Self {
        Self { transpose_a, transpose_b, ..Self::default() }
    }

    fn sizes(&self, a: &Shape, b: &Shape) -> Result<Sizes> {
        let error = |message| Error::shape(self.name(), message);
        if a.rank() < 2 || b.rank() < 2 {
            return Err(error(format!("expected operands of rank 2 or more, got {a} and {b}")));
        }
        if a.elements() == 0 || b.elements() == 0 {
            return Err(error(format!("expected operands that are not empty, got {a} and {b}")));
        }
        let split = |shape: &Shape, transposed: bool| {
            let (lead, last) = shape.dims().split_at(shape.rank() - 2);
            let (rows, columns) = if transposed { (last[1], last[0]) } else { (last[0], last[1]) };
            (Shape::from(lead), rows, columns)
        };
        let (a_batch, m, k) = split(a, self.transpose_a);
        let (b_batch, inner, n) = split(b, self.transpose_b);
        if k != inner {
            let flag = |t| if t { " transposed" } else { "" };
            let (ta, tb) = (flag(self.transpose_a), flag(self.transpose_b));
            return Err(error(format!("{a}{ta} times {b}{tb}: the inner dimensions are {k} and {inner}")));
        }
        let batch = broadcast(self.name(), &a_batch, &b_batch)?;
        Ok(Sizes { batch, a_batch, b_batch, m, k, n })
    }

    /// Whether a's leading dimensions are rows like any other, because one b serves them all.
    fn folds(&self, a: &Shape, b: &Shape) -> bool {
        !self.transpose_a && b.rank() == 2 && a.rank() > 2
    }

    fn defines(&self, kernel: Kernel) -> Kernel {
        let kernel = kernel.define_if(self.bias, "BIAS").define_if(self.activation.is_some(), "ACTIVATED");
        Activation::define(self.activation, kernel)
    }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Activation::check(self.activation, self.name())?;
        expect_all_f32(self.name(), 2 + usize::from(self.bias), inputs)?;
        let sizes = self.sizes(&inputs[0].shape, &inputs[1].shape)?;
        if self.bias {
            expect_shape(self.name(), "a bias", &[sizes.n].into(), &inputs[2].shape)?;
        }
        Walk::new(self.name(), &sizes.batch, [&sizes.a_batch, &sizes.b_batch])?;
        let mut dims = sizes.batch.dims().to_vec();
        dims.extend([sizes.m, sizes.n]);
        Ok(vec![TensorType::f32(dims)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let (a, b) = (&inputs[0].shape, &inputs[1].shape);
        let mut sizes = self.sizes(a, b)?;
        if self.folds(a, b) {
            let m = sizes.m * sizes.batch.elements();
            sizes = Sizes { batch: Shape::from([]), a_batch: Shape::from([]), m, ..sizes };
        }
        let Sizes { m, k, n, .. } = sizes;
        let batch = sizes.batch.elements();
        // The samples are the rows of a, or with a transposed the terms of the sums.
        let tile = Tile::new(target, Product { batch, m, k, n, k_varies: self.transpose_a });
        let result = (batch * m * n * 4) as u64;
        let flops = 2 * batch * m * n * k;
        // Few tiles and a long K (every weight gradient of a large micro-batch): cut K, then sum the parts in order.
        let (parts, chunk) = tile.parts();

        let walk = Walk::new(self.name(), &sizes.batch, [&sizes.a_batch, &sizes.b_batch])?;
        let batch_names: [[&str; MAX_RANK]; 2] = [["A0", "A1", "A2", "A3"], ["B0", "B1", "B2", "B3"]];
        let kernel = walk
            .constants(tile.kernel(), ["D1", "D2", "D3"], batch_names)
            .define_if(self.transpose_a, "TRANSPOSE_A")
            .define_if(self.transpose_b, "TRANSPOSE_B")
            .size("chunk", chunk)
            .size("parts", parts);
        let mut operands = vec![input(0), input(1)];
        if parts == 1 {
            operands.push(output(0));
            operands.extend(self.bias.then(|| input(2)));
            let launch = Launch::new(self.defines(kernel), operands, tile.count()).flops(flops);
            // What is activated in place cannot be added to what was there.
            return Ok(if self.activation.is_none() { launch.adding() } else { launch }.into());
        }
        operands.push((Operand::Scratch(0), Access::ReadWrite));
        let product = Launch::new(kernel, operands, tile.count() * parts).flops(flops).adding();
        let mut kernel = self.defines(sum_parts(parts));
        if self.bias {
            kernel = kernel.constant("N", n);
        }
        let mut operands = vec![(Operand::Scratch(0), Access::Read), output(0)];
        operands.extend(self.bias.then(|| input(2)));
        let sum = elementwise(kernel, batch * m * n, operands).adding();
        Ok(Lowering { scratch: vec![result * parts as u64], launches: vec![product, sum] })
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let mut dy = node.dy()?;
        if let Some(activation) = self.activation {
            // Recomputed where the output does not tell the derivative: cheaper than keeping both.
            let v = match activation.grad_from_output() {
                true => node.outputs[0],
                false => emit.emit(Self { activation: None, ..*self }, node.inputs)?,
            };
            dy = emit.emit(ActivationGrad(activation), &[v, dy])?;
        }
        let da = node.when(0, || {
            let da = match self.transpose_a {
                false => emit.emit(Self::plain(false, !self.transpose_b), &[dy, b])?,
                true => emit.emit(Self::plain(self.transpose_b, true), &[b, dy])?,
            };
            sum_to(emit, da, a)
        })?;
        let db = node.when(1, || {
            let (mut a, mut dy) = (a, dy);
            if self.folds(&emit.shape_of(a), &emit.shape_of(b)) {
                a = rows(emit, a)?;
                dy = rows(emit, dy)?;
            }
            let db = match self.transpose_b {
                false => emit.emit(Self::plain(!self.transpose_a, false), &[a, dy])?,
                true => emit.emit(Self::plain(true, self.transpose_a), &[dy, a])?,
            };
            sum_to(emit, db, b)
        })?;
        let mut gradients = vec![da, db];
        if self.bias {
            let shape = emit.shape_of(node.inputs[2]);
            gradients.push(node.when(2, || emit.emit(SumTo(shape), &[dy]))?);
        }
        Ok(gradients)
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        let rank = |index: usize| node.inputs[index].dims.len();
        let (transpose_a, transpose_b) = (self.transpose_a, self.transpose_b);
        let product = if rank(0) == 2 && rank(1) == 2 {
            let attributes = [("transA", transpose_a.into()), ("transB", transpose_b.into())];
            model.node("Gemm", &node.values(), &attributes)
        } else {
            let mut operand = |index: usize, transposed: bool| {
                let mut axes: Vec<usize> = (0..rank(index)).collect();
                axes.swap(rank(index) - 2, rank(index) - 1);
                match transposed {
                    true => model.node("Transpose", &[node.input(index)], &[("perm", axes[..].into())]),
                    false => node.input(index).clone(),
                }
            };
            let (a, b) = (operand(0, transpose_a), operand(1, transpose_b));
            let product = model.binary("MatMul", &a, &b);
            if self.bias { model.binary("Add", &product, node.input(2)) } else { product }
        };
        Ok(vec![Activation::write(self.activation, model, product)])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let (a, b) = (inputs[0], inputs[1]);
        let Sizes { batch, a_batch, b_batch, m, k, n } = self.sizes(&a.shape, &b.shape).expect("checked by infer");
        let walk = Walk::new(self.name(), &batch, [&a_batch, &b_batch]).expect("checked by infer");
        let mut data = Vec::with_capacity(batch.elements() * m * n);
        for [at_a, at_b] in walk.positions() {
            let (a, b) = (&a.data[at_a * m * k..][..m * k], &b.data[at_b * k * n..][..k * n]);
            for row in 0..m {
                let mut y = vec![0.0; n];
                for term in 0..k {
                    let x = if self.transpose_a { a[term * m + row] } else { a[row * k + term] };
                    for (column, y) in y.iter_mut().enumerate() {
                        *y += x * if self.transpose_b { b[column * k + term] } else { b[term * n + column] };
                    }
                }
                let bias = |column: usize| if self.bias { inputs[2].data[column] } else { 0.0 };
                let f = |x: f64| self.activation.map_or(x, |f| f.eval(x));
                data.extend(y.iter().enumerate().map(|(column, y)| f(y + bias(column))));
            }
        }
        let mut dims = batch.dims().to_vec();
        dims.extend([m, n]);
        vec![Reference { shape: dims.into(), data }]
    }
}

/// [..., M, N] as [rows, N].
fn rows(emit: &mut dyn Emit, value: ValueId) -> Result<ValueId> {
    let shape = emit.shape_of(value);
    let last = shape[shape.rank() - 1];
    emit.emit(Reshape(Shape::from([shape.elements() / last, last])), &[value])
}

pub(super) fn examples() -> Vec<Example> {
    let plain = MatMul::default();
    let (tn, nt, tt) = (MatMul::plain(true, false), MatMul::plain(false, true), MatMul::plain(true, true));
    let bias = MatMul { bias: true, ..plain };
    let mut examples = vec![
        Example::new(plain, [&[1, 1], &[1, 1]]),
        Example::new(plain, [&[63, 65], &[65, 67]]),
        Example::new(plain, [&[257, 384], &[384, 1152]]).weights(1),
        Example::new(plain, [&[521, 7], &[7, 66]]), // more than 500 rows
        Example::new(plain, [&[1, 1031], &[1031, 10]]).weights(1), // one row, K in parts
        Example::new(bias, [&[64, 784], &[784, 10], &[10]]).weights(1),
        Example::new(tn, [&[65, 31], &[65, 37]]),
        Example::new(tn, [&[2053, 17], &[2053, 10]]), // a weight gradient
        Example::new(nt, [&[66, 10], &[131, 10]]),
        Example::new(tt, [&[13, 5], &[7, 13]]),
        Example::new(bias, [&[3, 5, 11], &[11, 7], &[7]]), // one b for a batch
        Example::new(plain, [&[3, 5, 11], &[3, 11, 7]]),
        Example::new(tn, [&[2, 3, 11, 5], &[3, 11, 7]]), // leading dimensions broadcast
        Example::new(nt, [&[5, 11], &[4, 7, 11]]),
        Example::new(tn, [&[3, 11, 5], &[11, 7]]),
        // More rows than 8, for which software adapters have another kernel.
        Example::new(nt, [&[17, 1031], &[66, 1031]]).weights(1), // a prime K, in parts
        Example::new(tt, [&[100, 12], &[66, 100]]),
        Example::new(plain, [&[2, 1, 21, 13], &[3, 13, 70]]),
    ];
    let activated = |f| MatMul { activation: Some(f), ..bias };
    examples.extend(Activation::ALL.map(|f| Example::new(activated(f), [&[17, 23], &[23, 19], &[19]])));
    for rows in [3, 20] {
        examples.push(Example::new(activated(Activation::Relu), [&[rows, 1031], &[1031, 5], &[5]]).weights(1));
    }
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::expect::refusal;

    fn infer(op: MatMul, a: &[usize], b: &[usize]) -> Vec<usize> {
        let types = [a, b].map(|shape| TensorType::f32(shape.to_vec()));
        op.infer(&types.each_ref()).unwrap()[0].shape.dims().to_vec()
    }

    #[test]
    fn shapes_follow_the_flags_and_broadcast() {
        let (nn, tn) = (MatMul::default(), MatMul::plain(true, false));
        assert_eq!(infer(nn, &[2, 3], &[3, 5]), [2, 5]);
        assert_eq!(infer(tn, &[3, 2], &[3, 5]), [2, 5]);
        assert_eq!(infer(nn, &[7, 1, 2, 3], &[4, 3, 5]), [7, 4, 2, 5]);
    }

    #[test]
    fn errors_name_what_was_given() {
        let message = |op: MatMul, shapes: &[&[usize]]| refusal(&op, shapes);
        let nt = MatMul::plain(false, true);
        assert_eq!(
            message(nt, &[&[2, 3], &[5, 4]]),
            "matmul: [2, 3] times [5, 4] transposed: the inner dimensions are 3 and 4"
        );
        assert_eq!(message(nt, &[&[3], &[5, 3]]), "matmul: expected operands of rank 2 or more, got [3] and [5, 3]");
        let biased = MatMul { bias: true, ..nt };
        assert_eq!(message(biased, &[&[2, 3], &[5, 3], &[3]]), "matmul: expected a bias [5], got [3]");
    }

    #[test]
    fn a_weight_gradient_is_cut_along_its_long_dimension() {
        let tn = MatMul::plain(true, false);
        let (a, b, y) = (TensorType::f32([65_536, 128]), TensorType::f32([65_536, 10]), TensorType::f32([128, 10]));
        for tiling in [Tiling::Registers, Tiling::Workgroup] {
            let target = Target { tiling, ..Target::default() };
            let lowering = tn.lower(&[&a, &b], &[&y], &target).unwrap();
            let groups: u32 = lowering.launches[0].groups.iter().product();
            assert!(groups >= 32, "{tiling:?}: {groups} workgroups");
            assert!(lowering.scratch[0] <= target.max_binding);
        }
    }
}
