//! Attention in ONNX models, which have no operator for it before opset 23: products and a softmax.

use super::Attention;
use super::prelude::*;

/// What scores of keys that are not seen become: e to the power of it is 0 beside any other score.
const UNSEEN: f32 = -1e30;

/// Writes `op`; the logsumexp is left out.
pub(super) fn write(op: &Attention, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
    let turned =
        |model: &mut Builder, x: &Value, axes: [usize; 4]| model.node("Transpose", &[x], &[("perm", axes.into())]);
    // q (B, H, Tq, D), k (B, H, D, Tk), v (B, H, Tk, D)
    let ([q, k, v], [queries, keys]) = if op.packed {
        let mut part = |index: i64, axes| {
            let index = model.integers(&[], &[index]);
            let part = model.node("Gather", &[node.input(0), &index], &[("axis", 2.into())]); // (B, T, H, D)
            turned(model, &part, axes)
        };
        let parts = [part(0, [0, 2, 1, 3]), part(1, [0, 2, 3, 1]), part(2, [0, 2, 1, 3])];
        (parts, [node.extent(0, 1)?; 2])
    } else {
        let k = turned(model, node.input(1), [0, 1, 3, 2]);
        ([node.input(0).clone(), k, node.input(2).clone()], [node.extent(0, 2)?, node.extent(1, 2)?])
    };
    let q = model.with_number("Mul", &q, op.scale);
    let mut scores = model.binary("MatMul", &q, &k);
    let seen = seen(op, model, node, [queries, keys])?;
    if let Some(seen) = &seen {
        let unseen = model.number(UNSEEN);
        scores = model.node("Where", &[seen, &scores, &unseen], &[]);
    }
    let mut shares = model.node("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
    if let Some(seen) = seen.filter(|_| op.lengths) {
        // A query that sees no key has shared out among all.
        let zero = model.number(0.0);
        shares = model.node("Where", &[&seen, &shares, &zero], &[]);
    }
    let o = model.binary("MatMul", &shares, &v);
    Ok(vec![if op.packed { turned(model, &o, [0, 2, 1, 3]) } else { o }])
}

/// Which keys each query sees, [Tq, Tk] or [B, 1, Tq or 1, Tk]; `None`: all.
fn seen(op: &Attention, model: &mut Builder, node: &onnx::Node, [queries, keys]: [usize; 2]) -> Result<Option<Value>> {
    let numbers = model.list(&(0..keys).collect::<Vec<_>>());
    let causal = op.causal.then(|| {
        let own: Vec<i64> = (0..queries).map(|query| (query + keys - queries) as i64).collect();
        let own = model.integers(&[queries, 1], &own);
        model.binary("LessOrEqual", &numbers, &own)
    });
    if !op.lengths {
        return Ok(causal);
    }
    let lengths = &node.inputs[op.tensors()];
    let along = [lengths.dims[0], onnx::Dim::Fixed(1), onnx::Dim::Fixed(1), onnx::Dim::Fixed(1)];
    let lengths = model.reshape(&lengths.value, &along)?;
    let there = model.binary("Less", &numbers, &lengths);
    Ok(Some(match causal {
        Some(causal) => model.binary("And", &causal, &there),
        None => there,
    }))
}
