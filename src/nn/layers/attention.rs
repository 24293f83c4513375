//! Multi-head self-attention.

use std::sync::Arc;

use super::{Initializer, Layer};
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::{Decode, Mode};
use crate::op::{Attention, Emit, MatMul, Reshape, Rotary, RotaryTurns, Slice, ValueId, WriteRow};
use crate::tensor::{Shape, TensorType};

/// (N, T, C) → (N, T, C): attention of every position to the others (Vaswani et al., "Attention Is All You Need",
/// 2017).
///
/// Parameters as in PyTorch's `MultiheadAttention`: `in_proj_weight` (3C, C) with queries, keys and values in this
/// order, `in_proj_bias` (3C), `out_proj.weight` (C, C), `out_proj.bias` (C); weights Xavier uniform, biases zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfAttention {
    /// Number of heads; divides C.
    pub heads: usize,
    /// Whether a position attends only to itself and those before it.
    pub causal: bool,
    /// Base of the wavelengths of rotary position embedding (half-split pairs), usually 10,000; `None`: no rotation.
    pub rotary: Option<f32>,
    /// Whether the projections have biases.
    pub bias: bool,
    /// How the output projection's weight starts, where it is not as the others.
    pub out_init: Option<Initializer>,
}

impl SelfAttention {
    /// `heads` heads over the whole sequence, without rotation, with biases.
    pub const fn new(heads: usize) -> Self {
        Self { heads, causal: false, rotary: None, bias: true, out_init: None }
    }

    /// x · weightᵀ + bias with `out` outputs.
    fn project(&self, graph: &mut Graph, x: ValueId, names: [&str; 2], out: usize) -> Result<ValueId> {
        let dims = graph.shape(x).dims();
        let width = dims[dims.len() - 1];
        // Three square matrices side by side are initialised as such.
        let init = Init::XavierUniform { fan_in: width, fan_out: width };
        let mut inputs = vec![x, graph.parameter(names[0], [out, width], init)?];
        if self.bias {
            inputs.push(graph.parameter(names[1], [out], Init::Zeros)?);
        }
        graph.apply(MatMul { transpose_b: true, bias: self.bias, ..MatMul::default() }, &inputs)
    }
}

impl Layer for SelfAttention {
    fn kind(&self) -> &'static str {
        "self_attention"
    }

    fn decodes(&self) -> bool {
        self.causal
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let error = |message| Err(Error::shape("self_attention", message));
        let [batch, length, width] = *graph.shape(x).dims() else {
            let sample = Shape::from(&graph.shape(x).dims()[1..]);
            return error(format!("expected samples of shape [T, C], got {sample}"));
        };
        if self.heads == 0 || width % self.heads != 0 {
            return error(format!("expected heads that divide {width} channels, got {}", self.heads));
        }
        let (heads, head) = (self.heads, width / self.heads);
        let mut qkv = self.project(graph, x, ["in_proj_weight", "in_proj_bias"], 3 * width)?; // (N, T, 3C)
        if let Some(theta) = self.rotary {
            let (offset, inputs) = match mode {
                Mode::Decode(decode) => (true, vec![decode.position]),
                _ => (false, vec![]),
            };
            let turns =
                graph.apply(RotaryTurns { positions: length, first: 0, width: head, theta, offset }, &inputs)?;
            let vectors = graph.apply(Reshape([batch, length, 3 * heads, head].into()), &[qkv])?;
            let rotary = Rotary { vectors: 2 * heads, interleaved: false, inverse: false };
            qkv = graph.apply(rotary, &[vectors, turns])?;
        }
        let scale = 1.0 / (head as f32).sqrt();
        let o = if let Mode::Decode(decode) = mode {
            attend_to_carried(graph, qkv, [heads, head], scale, decode)?
        } else {
            let qkv = graph.apply(Reshape([batch, length, 3, heads, head].into()), &[qkv])?;
            let op = Attention { causal: self.causal, scale, lengths: false, packed: true };
            graph.emit_all(Arc::new(op), &[qkv])?[0] // (N, T, heads, head)
        };
        let o = graph.apply(Reshape([batch, length, width].into()), &[o])?;
        let project = |graph: &mut Graph| self.project(graph, o, ["out_proj.weight", "out_proj.bias"], width);
        match self.out_init {
            Some(initializer) => graph.initialized(initializer, project),
            None => project(graph),
        }
    }
}

/// The attention of one step (elements of `qkv`: 3, heads, head) to all steps so far, whose keys and values are carried
/// from run to run: (1, heads, 1, head).
fn attend_to_carried(
    graph: &mut Graph,
    qkv: ValueId,
    [heads, head]: [usize; 2],
    scale: f32,
    decode: Decode,
) -> Result<ValueId> {
    let qkv = graph.apply(Reshape([3, heads, 1, head].into()), &[qkv])?;
    let shape = graph.shape(qkv).clone();
    let part = |graph: &mut Graph, index: usize| graph.apply(Slice::along(&shape, 0, index..index + 1), &[qkv]);
    let q = part(graph, 0)?;
    let mut carried = Vec::new();
    for (index, name) in [(1, "keys"), (2, "values")] {
        let row = part(graph, index)?;
        let all = graph.carried(name, TensorType::f32([1, heads, decode.capacity, head]));
        carried.push(graph.apply(WriteRow, &[all, row, decode.position])?);
    }
    let op = Attention { causal: false, scale, lengths: true, packed: false };
    Ok(graph.emit_all(Arc::new(op), &[q, carried[0], carried[1], decode.length])?[0])
}
