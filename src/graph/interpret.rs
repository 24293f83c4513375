//! Runs a graph on the ops' f64 references: the oracle for plans, executors and the self-test.

use super::Graph;
use crate::error::{Error, Result};
use crate::kernel::Step;
use crate::op::{Reference, ValueId};

/// The values of `wanted`, with `inputs` (those that are not constants) and `parameters` in the graph's order, in the
/// first run: what is carried is zero.
///
/// # Errors
/// When the number or shape of the tensors given is not the graph's.
pub fn interpret(
    graph: &Graph,
    inputs: &[Reference],
    parameters: &[Reference],
    step: &Step,
    wanted: &[ValueId],
) -> Result<Vec<Reference>> {
    let mut values: Vec<Option<Reference>> = vec![None; graph.values().len()];
    for input in graph.inputs() {
        values[input.value.index()] = input.constant.as_deref().map(Reference::from);
    }
    let names = graph.inputs().iter().filter(|i| i.constant.is_none()).map(|i| (&i.name, i.value));
    let names = names.chain(graph.parameters().iter().map(|p| (&p.name, p.value)));
    let given = names.clone().count();
    if inputs.len() + parameters.len() != given {
        return Err(Error::shape(
            "interpret",
            format!("expected {given} tensors, got {}", inputs.len() + parameters.len()),
        ));
    }
    for ((name, value), tensor) in names.zip(inputs.iter().chain(parameters)) {
        if graph.shape(value) != &tensor.shape {
            let expected = graph.shape(value);
            return Err(Error::shape(
                format!("interpret {name}"),
                format!("expected {expected}, got {}", tensor.shape),
            ));
        }
        values[value.index()] = Some(tensor.clone());
    }
    for carried in graph.carried_tensors() {
        let zeros = Reference::from_fn(graph.shape(carried.value).clone(), |_| 0.0);
        values[carried.value.index()] = Some(zeros);
    }
    for node in graph.nodes() {
        let arguments: Vec<&Reference> = node
            .inputs
            .iter()
            .map(|v| values[v.index()].as_ref().expect("nodes come after what they depend on"))
            .collect();
        let results = node.op.reference(&arguments, step);
        for (value, result) in node.outputs.iter().zip(results) {
            assert_eq!(graph.shape(*value), &result.shape, "{}: the reference's shape", node.op.name());
            values[value.index()] = Some(result);
        }
    }
    Ok(wanted.iter().map(|v| values[v.index()].clone().expect("every value has been computed")).collect())
}
