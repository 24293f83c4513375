//! Reverse-mode differentiation as a pass that appends to the graph.

use super::{Accumulator, Graph, ParameterId, Source};
use crate::error::{Error, Result};
use crate::op::{Add, Backward, Emit, ValueId};

impl Graph {
    /// Appends the backward pass of `value`, whose cotangent is `seed` (same shape): the cotangents of `wrt`, `None`
    /// where `value` does not depend on one.
    ///
    /// With per-sample losses as `value` and sample weights as `seed`, the parameters' cotangents are the unnormalised
    /// sums Σ wₛ ∇ℓₛ over the micro-batch.
    ///
    /// # Errors
    /// When the shapes differ, or an op on the way has no backward rule.
    pub fn differentiate(&mut self, value: ValueId, seed: ValueId, wrt: &[ValueId]) -> Result<Vec<Option<ValueId>>> {
        let (of, with) = (self.type_of(value), self.type_of(seed));
        if of != with {
            return Err(Error::shape("differentiate", format!("the seed must be {of}, got {with}")));
        }
        let active = self.depends_on(wrt);
        let mut cotangents: Vec<Option<ValueId>> = vec![None; self.values.len()];
        cotangents[value.index()] = Some(seed);
        let forward = self.nodes.len();
        for index in (0..forward).rev() {
            let node = self.nodes[index].clone();
            let dys: Vec<_> = node.outputs.iter().map(|v| cotangents[v.index()]).collect();
            let wanted: Vec<_> = node.inputs.iter().map(|v| active[v.index()]).collect();
            if dys.iter().all(Option::is_none) || !wanted.contains(&true) {
                continue;
            }
            let rule = Backward { inputs: &node.inputs, outputs: &node.outputs, cotangents: &dys, wanted: &wanted };
            let outer = std::mem::replace(&mut self.scope, node.scope.clone());
            let dxs = node.op.backward(self, &rule);
            self.scope = outer;
            let dxs = dxs?;
            assert_eq!(dxs.len(), node.inputs.len(), "{}: one cotangent an input", node.op.name());
            for ((&input, dx), wanted) in node.inputs.iter().zip(dxs).zip(wanted) {
                let Some(dx) = dx.filter(|_| wanted) else { continue };
                assert_eq!(self.shape(input), self.shape(dx), "{}: a cotangent has its value's shape", node.op.name());
                // A value that is used twice gets the sum, in the order of the reversed graph.
                cotangents[input.index()] = Some(match cotangents[input.index()] {
                    Some(sum) => self.apply(Add, &[sum, dx])?,
                    None => dx,
                });
            }
        }
        Ok(wrt.iter().map(|v| cotangents[v.index()]).collect())
    }

    /// Differentiates per-sample losses with respect to all trained parameters and accumulates the gradients.
    ///
    /// # Errors
    /// As [`Graph::differentiate`]; and when such a parameter does not influence the loss, since it could never be
    /// trained.
    pub(crate) fn accumulate_gradients(&mut self, losses: ValueId, weights: ValueId) -> Result<()> {
        let trained: Vec<usize> =
            (0..self.parameters.len()).filter(|&i| self.parameters[i].role.is_trained()).collect();
        let values: Vec<ValueId> = trained.iter().map(|&i| self.parameters[i].value).collect();
        let gradients = self.differentiate(losses, weights, &values)?;
        for (index, gradient) in trained.into_iter().zip(gradients) {
            let Some(gradient) = gradient else {
                let name = &self.parameters[index].name;
                return Err(Error::shape(format!("parameter {name}"), "has no influence on the loss"));
            };
            self.accumulate(Accumulator::Gradient(ParameterId(index)), gradient);
        }
        Ok(())
    }

    /// For each value, whether it depends on one of `wrt`.
    fn depends_on(&self, wrt: &[ValueId]) -> Vec<bool> {
        let mut active = vec![false; self.values.len()];
        for value in wrt {
            active[value.index()] = true;
        }
        for (index, value) in self.values.iter().enumerate() {
            if let Source::Node { node, .. } = value.source {
                active[index] |= self.nodes[node].inputs.iter().any(|v| active[v.index()]);
            }
        }
        active
    }
}
