//! A graph as text: inputs, parameters, the nodes that run, what is summed and kept.

use std::fmt;

use super::{Accumulator, Graph, Source};
use crate::op::ValueId;

impl Graph {
    fn describe(&self, value: ValueId) -> String {
        match self.values[value.index()].source {
            Source::Input(i) => self.inputs[i].name.clone(),
            Source::Parameter(p) => self.parameters[p.0].name.clone(),
            Source::Carried(i) => self.carried[i].name.clone(),
            Source::Node { .. } => format!("%{}", value.index()),
        }
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for input in &self.inputs {
            let kind = if input.constant.is_some() { "constant " } else { "input    " };
            writeln!(f, "{kind}  {} = {}", input.name, self.values[input.value.index()].ty)?;
        }
        for parameter in &self.parameters {
            let what = if parameter.role.is_trained() { "parameter " } else { "running   " };
            writeln!(f, "{what} {} = f32{}", parameter.name, parameter.shape)?;
        }
        for carried in &self.carried {
            writeln!(f, "carried    {} = {}", carried.name, self.values[carried.value.index()].ty)?;
        }
        let needed = self.needed();
        for (node, _) in self.nodes.iter().zip(&needed).filter(|(_, needed)| **needed) {
            let outputs: Vec<_> =
                node.outputs.iter().map(|&v| format!("{}: {}", self.describe(v), self.values[v.index()].ty)).collect();
            let inputs: Vec<_> = node.inputs.iter().map(|&v| self.describe(v)).collect();
            write!(f, "{} = {:?}({})", outputs.join(", "), node.op, inputs.join(", "))?;
            writeln!(f, "{}", if node.scope.is_empty() { String::new() } else { format!("  # {}", node.scope) })?;
        }
        for (accumulator, value) in &self.accumulators {
            let target = match accumulator {
                Accumulator::Gradient(p) if self.parameters[p.0].role.is_trained() => {
                    format!("gradient of {}", self.parameters[p.0].name)
                }
                Accumulator::Gradient(p) => format!("sum for {}", self.parameters[p.0].name),
                Accumulator::Statistic(i) => format!("statistic {i}"),
            };
            writeln!(f, "accumulate {target} += {}", self.describe(*value))?;
        }
        for (name, value) in &self.outputs {
            writeln!(f, "output     {name} = {}", self.describe(*value))?;
        }
        Ok(())
    }
}
