//! Normalisation that depends on a sample alone.

use super::Layer;
use crate::error::Result;
use crate::graph::{Graph, Init};
use crate::nn::Mode;
use crate::op::{Emit, Normalization, Normalize, ValueId};

/// Normalises along the last dimension, then `weight` (C), ones, and `bias` (C), zeros; named as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Divides by the root mean square along the last dimension, then `weight` (C), ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Normalises each group of channels of (N, C, ..), then `weight` (C), ones, and `bias` (C), zeros.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupNorm {
    /// Number of groups; divides C.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f32,
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5, bias: true }
    }
}

impl Default for RmsNorm {
    fn default() -> Self {
        Self { epsilon: 1e-6 }
    }
}

impl GroupNorm {
    /// `groups` groups, ε = 1e-5.
    pub const fn new(groups: usize) -> Self {
        Self { groups, epsilon: 1e-5 }
    }
}

/// Appends the op with its parameters.
fn normalize(graph: &mut Graph, x: ValueId, op: Normalize) -> Result<ValueId> {
    let dims = graph.shape(x).dims();
    let channels = if matches!(op.kind, Normalization::Group(_)) { dims.get(1) } else { dims[1..].last() };
    let channels = *channels.ok_or_else(|| {
        crate::error::Error::shape(op.kind.name(), "expected samples of one dimension or more, got a number")
    })?;
    let mut inputs = vec![x, graph.parameter("weight", [channels], Init::Ones)?];
    if op.bias {
        inputs.push(graph.parameter("bias", [channels], Init::Zeros)?);
    }
    Ok(graph.emit_all(std::sync::Arc::new(op), &inputs)?[0])
}

impl Layer for LayerNorm {
    fn kind(&self) -> &'static str {
        "layer_norm"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let op = Normalize { kind: Normalization::Layer, epsilon: self.epsilon, weight: true, bias: self.bias };
        normalize(graph, x, op)
    }
}

impl Layer for RmsNorm {
    fn kind(&self) -> &'static str {
        "rms_norm"
    }

    fn decodes(&self) -> bool {
        true
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        normalize(graph, x, Normalize { kind: Normalization::Rms, epsilon: self.epsilon, weight: true, bias: false })
    }
}

impl Layer for GroupNorm {
    fn kind(&self) -> &'static str {
        "group_norm"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let kind = Normalization::Group(self.groups);
        normalize(graph, x, Normalize { kind, epsilon: self.epsilon, weight: true, bias: true })
    }
}
