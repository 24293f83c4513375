//! What is in a model's file, read back by the same messages. That onnxruntime reads it too is for the integration
//! tests.

use std::collections::HashSet;

use prost::Message;

use super::proto::{AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use super::*;
use crate::graph::{Graph, Init, to_onnx};
use crate::nn::layers::Recurrent;
use crate::nn::{Loss, Sequential, models, prediction_graph};
use crate::op::{Add, Expand, MatMul, Reshape, Transpose};
use crate::tensor::{Named, TensorType};

/// The file that `build` gives, with zeros for weights.
fn file(build: impl Fn(usize) -> Result<Graph>) -> ModelProto {
    let graph = build(2).unwrap();
    let weights = graph.parameters().iter().map(|p| (&p.name, vec![0.0; p.shape.elements()]));
    let mut model = to_onnx(&build, &Named::of(weights).unwrap()).unwrap();
    model.describe("classes", r#"["a","b"]"#);
    ModelProto::decode(&model.encode().unwrap()[..]).unwrap()
}

/// The graph that predicts with `model`.
fn predicting(model: Sequential) -> impl Fn(usize) -> Result<Graph> {
    move |samples| prediction_graph(&model, &Loss::cross_entropy(), samples)
}

/// An input's or output's name and dimensions.
fn port(value: &ValueInfoProto) -> String {
    let tensor = value.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref()).unwrap();
    let dims = &tensor.shape.as_ref().unwrap().dim;
    let dims = dims.iter().map(|d| d.dim_param.clone().unwrap_or_else(|| d.dim_value.unwrap().to_string()));
    format!("{} {:?} [{}]", value.name(), tensor.elem_type(), dims.collect::<Vec<_>>().join(", "))
}

fn operators(graph: &GraphProto) -> Vec<&str> {
    graph.node.iter().map(NodeProto::op_type).collect()
}

#[test]
fn a_model_comes_back_from_its_bytes() {
    let file = file(predicting(Sequential::new([3]).linear(4).relu().linear(2)));
    assert_eq!((file.ir_version(), file.producer_name()), (8, "everygpu"));
    let [opset] = &file.opset_import[..] else { panic!("{:?}", file.opset_import) };
    assert_eq!((opset.domain(), opset.version()), ("", 18));
    assert_eq!(file.metadata_props[0].value(), r#"["a","b"]"#);
    let graph = file.graph.unwrap();
    assert_eq!(graph.input.iter().map(port).collect::<Vec<_>>(), ["input Float [batch, 3]"]);
    assert_eq!(graph.output.iter().map(port).collect::<Vec<_>>(), ["prediction Float [batch, 2]"]);
    assert_eq!(operators(&graph), ["Gemm", "Relu", "Gemm", "Softmax", "Identity"]);
    assert_eq!(graph.node[0].input, ["input", "linear_1.weight", "linear_1.bias"]);
    let weight = graph.initializer.iter().find(|tensor| tensor.name() == "linear_1.weight").unwrap();
    assert_eq!((&weight.dims[..], weight.raw_data().len()), (&[4, 3][..], 4 * 4 * 3));
}

/// Written by hand after the encoding rules of Protocol Buffers and the field numbers of onnx.proto.
#[test]
fn bytes_are_those_of_the_format() {
    let attribute = AttributeProto {
        name: Some("to".to_owned()),
        i: Some(0),
        ints: vec![3, 300],
        r#type: Some(AttributeType::Int.into()),
        ..AttributeProto::default()
    };
    let expected = [0x0a, 2, b't', b'o', 0x18, 0, 0x40, 3, 0x40, 0xac, 2, 0xa0, 1, 2];
    assert_eq!(attribute.encode_to_vec(), expected);
}

#[test]
fn dimensions_that_grow_with_the_samples_are_told_from_others() {
    let of = |few, many| Dim::of([few, many]);
    assert_eq!([of(5, 5), of(0, 0)], [Some(Dim::Fixed(5)), Some(Dim::Fixed(0))]);
    assert_eq!([of(2, 3), of(14, 21)], [Some(Dim::PerSample(1)), Some(Dim::PerSample(7))]);
    assert_eq!([of(4, 9), of(3, 4), of(3, 2)], [None; 3]);
}

#[test]
fn shapes_are_computed_where_the_samples_appear_in_them() {
    let repeated = |samples: usize| {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32([samples, 2]));
        let one = graph.apply(Reshape([samples, 2, 1].into()), &[x])?;
        let y = graph.apply(Expand([samples, 2, 3].into()), &[one])?;
        // Rows of all samples: three times as many as there are samples.
        let rows = graph.apply(Transpose { axes: vec![0, 2, 1] }, &[y])?;
        let rows = graph.apply(Reshape([3 * samples, 2].into()), &[rows])?;
        let square = graph.apply(MatMul { transpose_b: true, ..MatMul::default() }, &[rows, rows])?;
        graph.output("pairs", square);
        let apart = graph.apply(Reshape([samples, 3, 3 * samples].into()), &[square])?;
        graph.output("apart", apart);
        Ok(graph)
    };
    let graph = file(repeated).graph.unwrap();
    let ports = graph.output.iter().map(port).collect::<Vec<_>>();
    assert_eq!(ports, ["pairs Float [3*batch, 3*batch]", "apart Float [batch, 3, 3*batch]"]);
    // The shapes of Expand and of the last Reshape, from one look at the input.
    let expected = "Reshape Shape Concat Expand Transpose Reshape Gemm Mul Concat Reshape Identity Identity";
    assert_eq!(operators(&graph).join(" "), expected);
}

#[test]
fn names_are_taken_once_and_equal_constants_written_once() {
    let build = |samples: usize| {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32([samples, 2]));
        let parameter = graph.parameter("x", [2], Init::Zeros)?;
        let mut y = graph.apply(Add, &[x, parameter])?;
        for _ in 0..2 {
            y = graph.apply(crate::op::Math::Scale(0.5.into()), &[y])?;
        }
        graph.output("Add", y);
        Ok(graph)
    };
    let graph = file(build).graph.unwrap();
    let outputs: Vec<_> = graph.node.iter().map(|node| node.output[0].as_str()).collect();
    assert_eq!(outputs, ["Add_1", "Mul", "Mul_1", "Add"]);
    assert_eq!(graph.initializer.iter().map(|tensor| tensor.name()).collect::<Vec<_>>(), ["constant", "x_1"]);
}

/// Checks that the nodes read what is known by then, and give it new names.
fn check_order(graph: &GraphProto, mut known: HashSet<String>) {
    known.extend(graph.input.iter().map(|value| value.name().to_owned()));
    known.extend(graph.initializer.iter().map(|tensor| tensor.name().to_owned()));
    for node in &graph.node {
        assert!(node.input.iter().all(|input| input.is_empty() || known.contains(input)), "{node:?}");
        for body in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
            check_order(body, known.clone());
        }
        assert!(node.output.iter().all(|output| known.insert(output.clone())), "{node:?}");
    }
    assert!(graph.output.iter().all(|output| known.contains(output.name())));
}

#[test]
fn nodes_come_after_what_they_read() {
    let gpt = models::Gpt::new(7, 6, 8, 2, 2).build().unwrap();
    let recurrent = Sequential::new([4, 3]).layer(Recurrent::lstm(5)).linear(2);
    for model in [gpt, recurrent, models::lenet([1, 28, 28], 10)] {
        check_order(&file(predicting(model)).graph.unwrap(), HashSet::new());
    }
}

#[test]
fn a_tied_weight_is_written_once() {
    let graph = file(predicting(models::Gpt::new(7, 6, 8, 1, 2).build().unwrap())).graph.unwrap();
    let count = |name: &str| graph.initializer.iter().filter(|tensor| tensor.name() == name).count();
    assert_eq!((count("tokens.weight"), count("tokens.weight_1")), (1, 0));
    assert_eq!(port(&graph.input[0]), "input Int64 [batch, 6]");
}
