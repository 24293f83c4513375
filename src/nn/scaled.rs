//! A network that takes values as they are in the data.

use super::{Mode, Model};
use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Mul, Sub, ValueId};
use crate::tensor::{HostTensor, TensorType};

/// A network behind a change of its inputs: it gets (x − shift) · factor. Both are the same for every sample and broadcast to
/// it by NumPy's rules. For inference: neither is trained.
pub struct Scaled<'a> {
    /// The network.
    pub model: &'a dyn Model,
    /// What is taken off.
    pub shift: Option<HostTensor>,
    /// What is multiplied by.
    pub factor: Option<HostTensor>,
}

impl Model for Scaled<'_> {
    fn input(&self) -> TensorType {
        self.model.input()
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let mut x = x;
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
