//! Every op's backward rule by random projection, on the f64 references: for one random cotangent c and one random
//! direction v, ⟨c, f(x + εv) − f(x − εv)⟩ / 2ε must equal ⟨∂⟨c, f⟩/∂x, v⟩. (Not a plain sum as the loss: it is blind to
//! softmax and normalisation gradients.)

use everygpu::graph::{Graph, interpret};
use everygpu::op::{Emit, Example, Fill, OPS, Reference, Step};
use everygpu::rng::Stream;
use everygpu::tensor::{DType, TensorType};

use crate::support::dot;

const EPSILON: f64 = 1e-6;
const STEP: Step = Step { seed: [1, 2], step: 3, first_row: 4, valid: 2, gradient_scale: 0.0, reserved: [0; 2] };

/// Relative difference between the two inner products for the op's output of this index; `None` where it has no backward
/// rule, or is whole numbers.
fn projection_error(example: &Example, output: usize) -> Option<f64> {
    let mut graph = Graph::new();
    let inputs: Vec<_> =
        example.inputs.iter().enumerate().map(|(i, (ty, _))| graph.input(&format!("x{i}"), ty.clone())).collect();
    let outputs = graph.emit_all(example.op.clone(), &inputs).expect("the example's shapes work");
    let y = outputs[output];
    if graph.type_of(y).dtype != DType::F32 {
        return None;
    }
    let seed = graph.input("seed", TensorType::f32(graph.shape(y).clone()));
    let moves = |(ty, fill): &(TensorType, Fill)| ty.dtype == DType::F32 && *fill != Fill::Mask;
    let floats: Vec<usize> = (0..inputs.len()).filter(|&i| moves(&example.inputs[i])).collect();
    let wrt: Vec<_> = floats.iter().map(|&i| inputs[i]).collect();
    let gradients = match graph.differentiate(y, seed, &wrt) {
        Ok(gradients) => gradients,
        Err(error) if error.to_string().contains("no backward rule") => return None,
        Err(error) => panic!("{:?}: {error}", example.op),
    };

    let mut stream = Stream::new(11, "projection");
    let mut tensors: Vec<Reference> = example.tensors(5).iter().map(Reference::from).collect();
    let cotangent = Reference::from(&Fill::Normal.tensor(&TensorType::f32(graph.shape(y).clone()), &mut stream));
    tensors.push(cotangent.clone());
    let directions: Vec<Reference> =
        floats.iter().map(|&i| Reference::from_fn(tensors[i].shape.clone(), |_| stream.normal())).collect();

    let wanted: Vec<_> = gradients.iter().flatten().copied().collect();
    let values = interpret(&graph, &tensors, &[], &STEP, &wanted).expect("the graph runs");
    let mut values = values.iter();
    let analytic: f64 = gradients
        .iter()
        .zip(&directions)
        .filter(|(gradient, _)| gradient.is_some())
        .map(|(_, direction)| dot(values.next().expect("one value a gradient"), direction))
        .sum();

    let along = |sign: f64| {
        let mut moved = tensors.clone();
        for (&i, direction) in floats.iter().zip(&directions) {
            moved[i] = tensors[i].zip(direction, |x, d| x + sign * EPSILON * d);
        }
        dot(&interpret(&graph, &moved, &[], &STEP, &[y]).expect("the graph runs")[0], &cotangent)
    };
    let numeric = (along(1.0) - along(-1.0)) / (2.0 * EPSILON);
    let scale = analytic.abs().max(numeric.abs()).max(1e-3);
    Some((analytic - numeric).abs() / scale)
}

#[test]
fn backward_rules_agree_with_finite_differences() {
    let mut checked = 0;
    for example in OPS.iter().flat_map(|entry| (entry.examples)()) {
        let inputs: Vec<_> = example.inputs.iter().map(|(ty, _)| ty).collect();
        let outputs = example.op.infer(&inputs).expect("the example's shapes work").len();
        for output in 0..outputs {
            if let Some(error) = projection_error(&example, output) {
                assert!(error < 1e-6, "{:?} on {inputs:?}: output {output}: relative error {error:.2e}", example.op);
                checked += 1;
            }
        }
    }
    assert!(checked > 0);
}

#[test]
fn every_op_is_exercised_under_its_own_name() {
    for entry in OPS {
        let examples = (entry.examples)();
        assert!(!examples.is_empty(), "{} has no examples", entry.name);
        for example in examples {
            assert_eq!(example.op.name(), entry.name);
        }
    }
}
