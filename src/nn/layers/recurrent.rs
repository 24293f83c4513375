//! Recurrent layers.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::{self, Cell, Emit, MatMul, Reshape, Slice, Transpose, ValueId};
use crate::tensor::Shape;

/// x (N, T, C) → the last h (N, hidden), or that of every step (N, T, hidden): LSTM or GRU layers on top of one
/// another, which start at h = 0.
///
/// Equations, order of gates and parameters as in PyTorch: `weight_ih_l0` (G hidden, C), `weight_hh_l0` (G hidden,
/// hidden), `bias_ih_l0` and `bias_hh_l0` (G hidden) with G = 4 or 3 gates, and the same for `l1` and so on; all start
/// uniform in ±1/√hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recurrent {
    /// What a step computes.
    pub cell: Cell,
    /// Hidden units, 1024 at most.
    pub hidden: usize,
    /// Layers on top of one another.
    pub layers: usize,
    /// Whether every step's h is given; else the last one.
    pub sequence: bool,
}

impl Recurrent {
    /// One LSTM layer that gives its last h.
    pub const fn lstm(hidden: usize) -> Self {
        Self { cell: Cell::Lstm, hidden, layers: 1, sequence: false }
    }

    /// One GRU layer that gives its last h.
    pub const fn gru(hidden: usize) -> Self {
        Self { cell: Cell::Gru, ..Self::lstm(hidden) }
    }

    /// Layer `index` on x (N, T, C): h of every step (N, T, hidden).
    fn layer(&self, graph: &mut Graph, x: ValueId, index: usize) -> Result<ValueId> {
        let dims = graph.shape(x).dims();
        let (channels, gates) = (dims[dims.len() - 1], self.cell.gates().saturating_mul(self.hidden));
        let init = Init::Uniform { bound: 1.0 / (self.hidden as f32).sqrt() };
        let mut parameter = |name: &str, shape: &[usize]| graph.parameter(&format!("{name}_l{index}"), shape, init);
        let weight_ih = parameter("weight_ih", &[gates, channels])?;
        let weight_hh = parameter("weight_hh", &[gates, self.hidden])?;
        let bias_ih = parameter("bias_ih", &[gates])?;
        let bias_hh = parameter("bias_hh", &[gates])?;
        // The input's part of the gates, for all steps at once.
        let project = MatMul { transpose_b: true, bias: true, ..MatMul::default() };
        let gates = graph.apply(project, &[x, weight_ih, bias_ih])?;
        let weight = graph.apply(Transpose { axes: vec![1, 0] }, &[weight_hh])?;
        Ok(graph.emit_all(std::sync::Arc::new(op::Recurrent(self.cell)), &[gates, weight, bias_hh])?[0])
    }
}

impl Layer for Recurrent {
    fn kind(&self) -> &'static str {
        match self.cell {
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
        }
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let [batch, length, _] = *graph.shape(x).dims() else {
            let sample = Shape::from(graph.shape(x).dims().get(1..).unwrap_or_default());
            return Err(Error::shape(self.kind(), format!("expected samples of shape [T, C], got {sample}")));
        };
        if self.hidden == 0 || self.layers == 0 {
            let message =
                format!("expected 1 hidden unit and 1 layer or more, got {} and {}", self.hidden, self.layers);
            return Err(Error::shape(self.kind(), message));
        }
        let h = (0..self.layers).try_fold(x, |x, index| self.layer(graph, x, index))?;
        if self.sequence {
            return Ok(h);
        }
        let last = Slice::along(graph.shape(h), 1, length - 1..length);
        let last = graph.apply(last, &[h])?;
        graph.apply(Reshape([batch, self.hidden].into()), &[last])
    }
}
