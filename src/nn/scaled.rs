//! A network that takes values as they are in the data.

use super::{Mode, Model};
use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Mul, Pad, Sub, ValueId};
use crate::tensor::{HostTensor, TensorType};

/// A network behind a change of its inputs: it gets (x − shift) · factor, x being an image with zeros around it. Both
/// are the same for every sample and broadcast to it by NumPy's rules. For inference: neither is trained.
pub struct Scaled<'a> {
    /// The network.
    pub model: &'a dyn Model,
    /// Zeros around images (channels, height, width), at the top, bottom, left and right; none around other samples.
    pub border: [usize; 4],
    /// What is taken off.
    pub shift: Option<HostTensor>,
    /// What is multiplied by.
    pub factor: Option<HostTensor>,
}

impl Model for Scaled<'_> {
    fn input(&self) -> TensorType {
        let mut input = self.model.input();
        if let [channels, height, width] = *input.shape.dims() {
            let [top, bottom, left, right] = self.border;
            input.shape = [channels, height.saturating_sub(top + bottom), width.saturating_sub(left + right)].into();
        }
        input
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let mut x = x;
        if self.border != [0; 4] {
            let [top, bottom, left, right] = self.border;
            let around = vec![[0, 0], [0, 0], [top, bottom], [left, right]];
            x = graph.apply(Pad { around, value: 0.0.into() }, &[x])?;
        }
        if let Some(shift) = &self.shift {
            let shift = graph.constant("shift", shift.clone());
            x = graph.apply(Sub, &[x, shift])?;
        }
        if let Some(factor) = &self.factor {
            let factor = graph.constant("factor", factor.clone());
            x = graph.apply(Mul, &[x, factor])?;
        }
        self.model.forward(graph, x, mode)
    }
}
