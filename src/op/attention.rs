//! Scaled dot-product attention that never writes the matrix of scores.

use std::ops::Range;

use super::attention_grad::AttentionGrad;
use super::attention_onnx;
use super::prelude::*;

/// (q [B, H, Tq, D], k [B, H, Tk, D], v [B, H, Tk, D]) → (o [B, H, Tq, D], logsumexp [B, H, Tq]); or `packed`, (qkv
/// [B, T, 3, H, D]) → (o [B, T, H, D], logsumexp [B, H, T]), as linear layers make and take it. In either form
/// `lengths` u32 \[B\] may follow: the number of keys of each sample that are there, the others being padding.
///
/// o = softmax(scale · q kᵀ) v over the keys that a query sees: with `causal` the last query sees all keys, each one
/// before it one key less. A query that sees no key gets o = 0 and a logsumexp of −1e30. The logsumexp is there for the
/// backward pass and has no gradient itself.
///
/// The kernel walks the keys once with a running maximum and sum (Milakov and Gimelshein, "Online normalizer
/// calculation for softmax", 2018; Dao et al., "FlashAttention", 2022), an invocation a query, as FlashAttention-2 does
/// it (Dao, 2023); blocks of keys come through workgroup memory where that is fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Whether queries see only keys at or before their own position.
    pub causal: bool,
    /// What scores are multiplied by; usually 1/√D.
    pub scale: f32,
    /// Whether there are lengths.
    pub lengths: bool,
    /// Whether queries, keys and values come as one tensor.
    pub packed: bool,
}

/// Largest D: what an invocation keeps of a query.
const MAX_WIDTH: usize = 256;
/// The logsumexp of a query that sees no key.
const NOTHING: f64 = -1e30;

/// Sizes and strides.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Geometry {
    pub batch: usize,
    pub heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
    /// Strides of q, of k and v, and of o along B, H and T.
    pub q: [usize; 3],
    pub kv: [usize; 3],
    pub o: [usize; 3],
    /// Where keys and values begin in their buffers.
    pub bases: [usize; 2],
}

impl Geometry {
    /// The shape of o.
    pub fn output(&self, packed: bool) -> Shape {
        match packed {
            true => [self.batch, self.queries, self.heads, self.width].into(),
            false => [self.batch, self.heads, self.queries, self.width].into(),
        }
    }

    /// Where the row of `strides` for (b, h, t) begins.
    pub fn at(strides: [usize; 3], b: usize, h: usize, t: usize) -> usize {
        b * strides[0] + h * strides[1] + t * strides[2]
    }

    /// For each query of each head: (its number, b, h, t, keys that it sees).
    pub fn queries<'a>(
        &'a self,
        op: &'a Attention,
        lengths: Option<&'a Reference>,
    ) -> impl Iterator<Item = [usize; 5]> + 'a {
        (0..self.batch * self.heads * self.queries).map(move |number| {
            let (head, t) = (number / self.queries, number % self.queries);
            let b = head / self.heads;
            let seen = if op.causal { t + 1 + self.keys - self.queries } else { self.keys };
            let seen = lengths.map_or(seen, |lengths| seen.min(lengths.data[b] as usize));
            [number, b, head % self.heads, t, seen]
        })
    }
}

impl Attention {
    /// Inputs of q, k and v.
    pub(super) fn tensors(&self) -> usize {
        if self.packed { 1 } else { 3 }
    }

    pub(super) fn geometry(&self, op: &str, inputs: &[&Shape]) -> Result<Geometry> {
        let dims: Vec<_> = inputs.iter().map(|shape| shape.dims()).collect();
        let geometry = match (self.packed, &dims[..]) {
            (true, &[&[batch, length, 3, heads, width]]) => {
                let strides = [length * 3 * heads * width, width, 3 * heads * width];
                let o = [length * heads * width, width, heads * width];
                let bases = [heads * width, 2 * heads * width];
                Geometry { batch, heads, queries: length, keys: length, width, q: strides, kv: strides, o, bases }
            }
            (false, &[&[batch, heads, queries, width], &[b, h, keys, w], v]) if dims[1] == v => {
                if [batch, heads, width] != [b, h, w] {
                    let message = format!("expected q and k [B, H, T, D], got {} and {}", inputs[0], inputs[1]);
                    return Err(Error::shape(op, message));
                }
                let q = [heads * queries * width, queries * width, width];
                let kv = [heads * keys * width, keys * width, width];
                Geometry { batch, heads, queries, keys, width, q, kv, o: q, bases: [0, 0] }
            }
            _ => {
                let expected = if self.packed { "qkv [B, T, 3, H, D]" } else { "q, k and v [B, H, T, D]" };
                return Err(Error::shape(op, format!("expected {expected}, got {inputs:?}")));
            }
        };
        let Geometry { queries, keys, width, .. } = geometry;
        if inputs.iter().any(|shape| shape.elements() == 0) || width > MAX_WIDTH {
            let message =
                format!("expected tensors that are not empty and heads of {MAX_WIDTH} or less, got {inputs:?}");
            return Err(Error::shape(op, message));
        }
        if self.causal && queries > keys {
            let message =
                format!("expected as many keys as queries or more with a causal mask, got {keys} and {queries}");
            return Err(Error::shape(op, message));
        }
        Ok(geometry)
    }

    /// Checks the first inputs and the lengths, which come last; there are `between` inputs in between.
    pub(super) fn expect(&self, op: &str, inputs: &[&TensorType], between: usize) -> Result<Geometry> {
        let expected = self.tensors() + between + usize::from(self.lengths);
        expect_count(op, expected, inputs)?;
        expect_all_f32(op, self.tensors() + between, &inputs[..self.tensors() + between])?;
        let shapes: Vec<_> = inputs[..self.tensors()].iter().map(|ty| &ty.shape).collect();
        let geometry = self.geometry(op, &shapes)?;
        if self.lengths && *inputs[expected - 1] != TensorType::u32([geometry.batch]) {
            let message = format!("expected lengths u32[{}], got {}", geometry.batch, inputs[expected - 1]);
            return Err(Error::shape(op, message));
        }
        Ok(geometry)
    }

    /// A launch over blocks of `rows` rows of every head: `others` are bound first, then q, k and v, then the lengths,
    /// which are the input of index `lengths`.
    pub(super) fn launch(
        &self,
        kernel: Kernel,
        g: &Geometry,
        (rows, lengths): (usize, usize),
        others: Vec<(Operand, Access)>,
    ) -> Launch {
        let blocks = rows.div_ceil(kernel.workgroup[0] as usize);
        let names = [["Q_B", "Q_H", "Q_T"], ["KV_B", "KV_H", "KV_T"], ["O_B", "O_H", "O_T"]];
        let strides = names.into_iter().flatten().zip([g.q, g.kv, g.o].into_iter().flatten());
        let sizes = [
            ("HEADS", g.heads),
            ("QUERIES", g.queries),
            ("KEYS", g.keys),
            ("WIDTH", g.width),
            ("ROWS", rows),
            ("K_BASE", g.bases[0]),
            ("V_BASE", g.bases[1]),
            ("QKV", others.len()),
            ("LENGTHS_AT", others.len() + self.tensors()),
        ];
        let kernel = strides.chain(sizes).fold(kernel, |kernel, (name, size)| kernel.constant(name, size));
        let kernel = kernel
            .constant("SCALE", self.scale)
            .size("batch", g.batch)
            .define_if(!g.width.is_multiple_of(4), "RAGGED")
            .define_if(self.causal, "CAUSAL")
            .define_if(self.lengths, "LENGTHS")
            .define_if(self.packed, "PACKED");
        let mut operands = others;
        operands.extend((0..self.tensors()).map(input));
        operands.extend(self.lengths.then(|| input(lengths)));
        Launch::new(kernel, operands, g.batch * g.heads * blocks)
    }

    /// Pairs of one of these queries and one of these keys that it sees, over all heads of samples without padding.
    pub(super) fn pairs(&self, g: &Geometry, queries: Range<usize>, keys: Range<usize>) -> usize {
        let seen = |query| if self.causal { query + 1 + g.keys - g.queries } else { g.keys };
        let of_head: usize = queries.map(|query| seen(query).clamp(keys.start, keys.end) - keys.start).sum();
        g.batch * g.heads * of_head
    }

    /// The kernels of `shader` that walk `rows` rows, each a part of them, which stands beside it: an invocation runs
    /// some 48,000 iterations at most, of which older lavapipe ends at 65,535. They see their part as `FIRST` and
    /// `END`, and know by `CONTINUE` that there were others.
    pub(super) fn walks(kernel: &Kernel, g: &Geometry, rows: usize, target: &Target) -> Vec<(Kernel, Range<usize>)> {
        let vectors = g.width.div_ceil(4);
        let part = (4 * 48_000 / (3 * vectors + 4)) / 32 * 32;
        let staged = target.tiling == Tiling::Workgroup;
        // Two tiles of rows in 16 KiB.
        let tile = if staged { (512 / vectors / 4 * 4).clamp(4, 32) } else { part };
        let parts = (0..rows).step_by(part).map(|first| {
            let end = rows.min(first + part);
            let kernel = kernel.clone().constant("FIRST", first).constant("END", end).constant("TILE", tile);
            (kernel.define_if(staged, "STAGED").define_if(first > 0, "CONTINUE"), first..end)
        });
        parts.collect()
    }

    /// Rows that a workgroup has, an invocation a row.
    pub(super) fn workgroup(target: &Target) -> u32 {
        if target.tiling == Tiling::Registers { 8 } else { 64 }
    }
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        if !self.scale.is_finite() {
            return Err(Error::shape(self.name(), format!("expected a finite scale, got {}", self.scale)));
        }
        let g = self.expect(self.name(), inputs, 0)?;
        Ok(vec![TensorType::f32(g.output(self.packed)), TensorType::f32([g.batch, g.heads, g.queries])])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], target: &Target) -> Result<Lowering> {
        let g = self.expect(self.name(), inputs, 0)?;
        let kernel = Kernel::linear(shader!("attention"), Self::workgroup(target));
        let rows = (g.queries, self.tensors());
        let launch = |(kernel, keys): (Kernel, Range<usize>)| {
            // q kᵀ and p v.
            let flops = 4 * g.width * self.pairs(&g, 0..g.queries, keys);
            self.launch(kernel, &g, rows, vec![output(0), output(1)]).flops(flops)
        };
        let launches = Self::walks(&kernel, &g, g.keys, target).into_iter().map(launch).collect();
        Ok(Lowering { scratch: vec![], launches })
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let [Some(d_o), None] = *node.cotangents else {
            return Err(Error::shape(self.name(), "has no backward rule for its logsumexp"));
        };
        let mut inputs = node.inputs[..self.tensors()].to_vec();
        inputs.extend([node.outputs[0], node.outputs[1], d_o]);
        inputs.extend(&node.inputs[self.tensors()..]);
        let gradients = emit.emit_all(std::sync::Arc::new(AttentionGrad(*self)), &inputs)?;
        let mut gradients: Vec<_> = gradients.into_iter().map(Some).collect();
        gradients.resize(node.inputs.len(), None);
        Ok(gradients)
    }

    fn onnx(&self, model: &mut Builder, node: &onnx::Node) -> Result<Vec<Value>> {
        attention_onnx::write(self, model, node)
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        let shapes: Vec<_> = inputs[..self.tensors()].iter().map(|x| &x.shape).collect();
        let g = self.geometry(self.name(), &shapes).expect("checked by infer");
        let (q, k, v) = (inputs[0], inputs[self.tensors() / 2], inputs[self.tensors() - 1]);
        let lengths = self.lengths.then(|| inputs[self.tensors()]);
        let mut o = Reference::zeros(g.output(self.packed));
        let mut sums = Reference::zeros([g.batch, g.heads, g.queries]);
        for [number, b, h, t, seen] in g.queries(self, lengths) {
            let query = &q.data[Geometry::at(g.q, b, h, t)..][..g.width];
            let row = |base: usize, key: usize| base + Geometry::at(g.kv, b, h, key);
            let scores: Vec<f64> = (0..seen)
                .map(|key| &k.data[row(g.bases[0], key)..][..g.width])
                .map(|key| f64::from(self.scale) * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>())
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            sums.data[number] = if seen == 0 { NOTHING } else { top + total.ln() };
            let out = &mut o.data[Geometry::at(g.o, b, h, t)..][..g.width];
            for (key, score) in scores.iter().enumerate() {
                let value = &v.data[row(g.bases[1], key)..][..g.width];
                let p = (score - top).exp() / total;
                out.iter_mut().zip(value).for_each(|(o, v)| *o += p * v);
            }
        }
        vec![o, sums]
    }
}

/// Ops and the shapes of q, k and v that this op and its gradient are tested with.
pub(super) fn cases() -> Vec<(Attention, Vec<Vec<usize>>)> {
    let scale = |width: usize| 1.0 / (width as f32).sqrt();
    let op = |causal, lengths, packed, width| Attention { causal, scale: scale(width), lengths, packed };
    let separate = |causal, lengths, [b, h, tq, tk, d]: [usize; 5]| {
        (op(causal, lengths, false, d), vec![vec![b, h, tq, d], vec![b, h, tk, d], vec![b, h, tk, d]])
    };
    let packed = |causal, lengths, [b, t, h, d]: [usize; 4]| (op(causal, lengths, true, d), vec![vec![b, t, 3, h, d]]);
    vec![
        separate(false, false, [1, 1, 1, 1, 1]),
        separate(true, false, [2, 3, 65, 65, 10]),
        separate(false, true, [3, 2, 7, 37, 33]),
        separate(true, true, [3, 1, 13, 70, 22]),
        separate(false, false, [1, 1, 9, 67, 132]),
        packed(true, false, [2, 67, 3, 10]),
        packed(true, true, [2, 5, 1, 18]),
        packed(false, false, [1, 35, 1, 256]),
    ]
}

pub(super) fn examples() -> Vec<Example> {
    let case = |(op, shapes): (Attention, Vec<Vec<usize>>)| {
        let inputs = shapes.iter().map(|s| (TensorType::f32(s.clone()), super::Fill::Normal)).collect();
        let keys = if op.packed { shapes[0][1] } else { shapes[1][2] };
        let example = Example { op: std::sync::Arc::new(op), inputs };
        if op.lengths { example.labels(&shapes[0][..1], keys as u32 + 2) } else { example }
    };
    cases().into_iter().map(case).collect()
}

#[cfg(test)]
mod tests;
