//! Cotangents of attention's queries, keys and values, by computing the scores again.

use super::attention::{Attention, Geometry, cases};
use super::prelude::*;

/// (q, k, v, o, logsumexp, do) → (dq, dk, dv), or packed (qkv, o, logsumexp, do) → dqkv; in either form lengths may
/// follow.
///
/// With p the probabilities, which the logsumexp gives back from the scores: dv = pᵀ do, ds = p ∘ (do vᵀ − rowsum(do ∘
/// o)), dq = scale · ds k, dk = scale · dsᵀ q (Dao et al., "FlashAttention", 2022, algorithm 4). As in FlashAttention-2
/// (Dao, 2023) the queries' and the keys' gradients have a kernel each, with an invocation a row: nothing is added to
/// by two, so results are repeatable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionGrad(pub Attention);

impl Op for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let g = self.0.expect(self.name(), inputs, 3)?;
        let first = self.0.tensors();
        let o = g.output(self.0.packed);
        let expected = [("o", &o), ("logsumexp", &[g.batch, g.heads, g.queries].into()), ("do", &o)];
        for (given, (what, expected)) in inputs[first..].iter().zip(expected) {
            expect_shape(self.name(), what, expected, &given.shape)?;
        }
        Ok(inputs[..first].iter().map(|ty| (*ty).clone()).collect())
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let g = self.0.expect(self.name(), inputs, 3)?;
        let first = self.0.tensors();
        let (o, logsumexp, d_o) = (input(first), input(first + 1), input(first + 2));
        let statistics = (Operand::Scratch(0), Access::Read);

        let rows = g.batch * g.heads * g.queries;
        let kernel = Kernel::linear(shader!("attention_grad_rows"), 64)
            .constant("HEADS", g.heads)
            .constant("QUERIES", g.queries)
            .constant("WIDTH", g.width)
            .constant("O_B", g.o[0])
            .constant("O_H", g.o[1])
            .constant("O_T", g.o[2]);
        let operands = vec![o, logsumexp, d_o, (Operand::Scratch(0), Access::ReadWrite)];
        let mut launches = vec![elementwise(kernel, rows, operands)];

        let workgroup = Attention::workgroup(target);
        let kernel = Kernel::linear(shader!("attention_grad_query"), workgroup);
        for (kernel, keys) in Attention::walks(&kernel, &g, g.keys, target) {
            let launch = self.0.launch(kernel, &g, (g.queries, first + 3), vec![d_o, statistics, output(0)]);
            // q kᵀ again, do vᵀ and ds k.
            launches.push(launch.flops(6 * g.width * self.0.pairs(&g, 0..g.queries, keys)));
        }
        let kernel = Kernel::linear(shader!("attention_grad"), workgroup);
        let mut others = vec![d_o, statistics];
        others.extend(if self.0.packed { vec![output(0)] } else { vec![output(1), output(2)] });
        for (kernel, queries) in Attention::walks(&kernel, &g, g.queries, target) {
            let launch = self.0.launch(kernel, &g, (g.keys, first + 3), others.clone());
            // k qᵀ again, v doᵀ, pᵀ do and dsᵀ q.
            launches.push(launch.flops(8 * g.width * self.0.pairs(&g, queries, 0..g.keys)));
        }
        Ok(Lowering { scratch: vec![(rows * 8) as u64], launches })
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let first = self.0.tensors();
        let shapes: Vec<_> = inputs[..first].iter().map(|x| &x.shape).collect();
        let g = self.0.geometry(self.name(), &shapes).expect("checked by infer");
        let (q, k, v) = (&inputs[0].data, &inputs[first / 2].data, &inputs[first - 1].data);
        let (o, logsumexp, d_o) = (&inputs[first].data, &inputs[first + 1].data, &inputs[first + 2].data);
        let lengths = self.0.lengths.then(|| inputs[first + 3]);
        let mut gradients: Vec<_> = inputs[..first].iter().map(|x| Reference::zeros(x.shape.clone())).collect();
        let scale = f64::from(self.0.scale);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for [number, b, h, t, seen] in g.queries(&self.0, lengths) {
            let (from, to) = (Geometry::at(g.q, b, h, t), Geometry::at(g.o, b, h, t));
            let (query, d_o) = (&q[from..][..g.width], &d_o[to..][..g.width]);
            let delta = dot(d_o, &o[to..][..g.width]);
            for key in 0..seen {
                let [at_k, at_v] = g.bases.map(|base| base + Geometry::at(g.kv, b, h, key));
                let p = (scale * dot(query, &k[at_k..][..g.width]) - logsumexp[number]).exp();
                let ds = scale * p * (dot(d_o, &v[at_v..][..g.width]) - delta);
                for d in 0..g.width {
                    gradients[0].data[from + d] += ds * k[at_k + d];
                    gradients[first / 2].data[at_k + d] += ds * query[d];
                    gradients[first - 1].data[at_v + d] += p * d_o[d];
                }
            }
        }
        gradients
    }
}

pub(super) fn examples() -> Vec<Example> {
    // logsumexp as large as scores give it, or so; with a smaller one, probabilities would be above 1.
    let case = |(op, shapes): (Attention, Vec<Vec<usize>>)| {
        let types: Vec<_> = shapes.iter().map(|s| TensorType::f32(s.clone())).collect();
        let outputs = op.geometry("example", &types.iter().map(|ty| &ty.shape).collect::<Vec<_>>());
        let g = outputs.expect("the cases fit");
        let o = TensorType::f32(g.output(op.packed));
        let mut inputs: Vec<_> = types.into_iter().map(|ty| (ty, Fill::Weights)).collect();
        inputs.push((o.clone(), Fill::Weights));
        inputs.push((TensorType::f32([g.batch, g.heads, g.queries]), Fill::Positive));
        inputs.push((o, Fill::Weights));
        let example = Example { op: std::sync::Arc::new(AttentionGrad(op)), inputs };
        if op.lengths { example.labels(&[g.batch], g.keys as u32 + 2) } else { example }
    };
    cases().into_iter().map(case).collect()
}
