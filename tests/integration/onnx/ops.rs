//! Every op that a prediction may hold, in every example of its table.

use std::collections::BTreeSet;

use everygpu::graph::{Graph, interpret, to_onnx};
use everygpu::kernel::Step;
use everygpu::op::{Emit, Example, OPS, Reference};
use everygpu::tensor::{DType, HostTensor, Named};

use super::{Case, check};

/// Ops that only training or decoding needs.
const WITHOUT_FORM: &[&str] = &[
    "activation_grad",
    "adaptive_avg_pool2d_grad",
    "attention_grad",
    "avg_pool2d_grad",
    "batch_norm",
    "batch_norm_grad",
    "batch_norm_grad_sums",
    "batch_norm_sums",
    "conv2d_grad_bias",
    "conv2d_grad_weight",
    "correct",
    "dropout",
    "embedding_grad",
    "gather_grad",
    "math_grad",
    "max_pool2d_grad",
    "mean_squared_error",
    "mean_squared_error_grad",
    "normalize_grad",
    "normalize_grad_weight",
    "recurrent_grad",
    "softmax_cross_entropy",
    "softmax_cross_entropy_grad",
    "softmax_grad",
    "upsample2d_grad",
    "weighted_sum",
    "write_row",
];

/// The example's first output; the others are for the backward pass.
fn graph(example: &Example) -> Graph {
    let mut graph = Graph::new();
    let types = example.inputs.iter().enumerate();
    let inputs: Vec<_> = types.map(|(i, (ty, _))| graph.input(&format!("x{i}"), ty.clone())).collect();
    let outputs = graph.emit_all(example.op.clone(), &inputs).expect("the example's shapes work");
    graph.output("y", outputs[0]);
    graph
}

/// The example as a model of fixed sizes, and what the reference gives.
fn case(name: String, example: &Example) -> everygpu::error::Result<Case> {
    let model = to_onnx(&|_| Ok(graph(example)), &Named::default())?.encode()?;
    let (graph, tensors) = (graph(example), example.tensors(5));
    let references: Vec<Reference> = tensors.iter().map(Reference::from).collect();
    let (_, y) = graph.outputs()[0];
    let expected = interpret(&graph, &references, &[], &Step::default(), &[y])?.remove(0);
    let expected = match graph.values()[y.index()].ty.dtype {
        DType::F32 => HostTensor::f32(expected.shape, expected.data.iter().map(|&v| v as f32).collect()),
        DType::U32 => HostTensor::u32(expected.shape, expected.data.iter().map(|&v| v as u32).collect()),
    };
    let inputs = Named::of(tensors.into_iter().enumerate().map(|(i, tensor)| (format!("x{i}"), tensor)))?;
    Ok(Case { name, model, runs: vec![[inputs, Named::of([("y", expected?)])?]] })
}

#[test]
fn every_op_gives_in_onnxruntime_what_its_reference_gives() {
    let (mut cases, mut without) = (Vec::new(), BTreeSet::new());
    for entry in OPS {
        for (number, example) in (entry.examples)().iter().enumerate() {
            match case(format!("{}-{number}", entry.name), example) {
                Ok(case) => cases.push(case),
                Err(error) if error.to_string().contains("with a position to start from") => {}
                Err(error) => {
                    assert_eq!(error.to_string(), format!("{}: has no ONNX form", entry.name));
                    without.insert(entry.name);
                }
            }
        }
    }
    assert_eq!(without.into_iter().collect::<Vec<_>>(), WITHOUT_FORM);
    check(&cases);
}
