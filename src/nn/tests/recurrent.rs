//! Recurrent layers against their equations, written plainly from PyTorch's documentation, and their gradients.

use super::check_gradients;
use crate::graph::interpret;
use crate::kernel::Step;
use crate::nn::layers::{Cell, Embedding, Recurrent};
use crate::nn::*;
use crate::op::Reference;
use crate::rng::Stream;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// weight (rows, columns) · x + bias.
fn affine(weight: &Reference, x: &[f64], bias: &Reference) -> Vec<f64> {
    let row = |i: usize| weight.data[i * x.len()..][..x.len()].iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    (0..weight.shape[0]).map(|i| row(i) + bias.data[i]).collect()
}

/// torch.nn.LSTM and torch.nn.GRU, one layer: h of every step for the inputs `xs` of a sample.
fn layer(cell: Cell, xs: &[Vec<f64>], [weight_ih, weight_hh, bias_ih, bias_hh]: [&Reference; 4]) -> Vec<Vec<f64>> {
    let hidden = weight_hh.shape[1];
    let (mut h, mut c) = (vec![0.0; hidden], vec![0.0; hidden]);
    xs.iter()
        .map(|x| {
            let (a, b) = (affine(weight_ih, x, bias_ih), affine(weight_hh, &h, bias_hh));
            let at = |gate: usize, unit: usize| gate * hidden + unit;
            for unit in 0..hidden {
                let sum = |gate| a[at(gate, unit)] + b[at(gate, unit)];
                match cell {
                    Cell::Lstm => {
                        c[unit] = sigmoid(sum(1)) * c[unit] + sigmoid(sum(0)) * sum(2).tanh();
                        h[unit] = sigmoid(sum(3)) * c[unit].tanh();
                    }
                    Cell::Gru => {
                        let z = sigmoid(sum(1));
                        let n = (a[at(2, unit)] + sigmoid(sum(0)) * b[at(2, unit)]).tanh();
                        h[unit] = (1.0 - z) * n + z * h[unit];
                    }
                }
            }
            h.clone()
        })
        .collect()
}

#[test]
fn layers_compute_pytorchs_equations() {
    for cell in [Cell::Lstm, Cell::Gru] {
        let recurrent = Recurrent { cell, layers: 2, sequence: true, ..Recurrent::lstm(5) };
        let of = |sequence| Sequential::new([4, 3]).layer(Recurrent { sequence, ..recurrent });
        let mut stream = Stream::new(1, "test");
        let graph = prediction_graph(&of(true), &Loss::MeanSquaredError, 2).unwrap();
        let names: Vec<_> = graph.parameters().iter().map(|p| format!("{} {}", p.name, p.shape)).collect();
        let (kind, rows) = (recurrent.kind(), 5 * cell.gates());
        assert_eq!(
            names[..2],
            [format!("{kind}_1.weight_ih_l0 [{rows}, 3]"), format!("{kind}_1.weight_hh_l0 [{rows}, 5]")]
        );
        assert_eq!(
            names[4..6],
            [format!("{kind}_1.weight_ih_l1 [{rows}, 5]"), format!("{kind}_1.weight_hh_l1 [{rows}, 5]")]
        );
        assert_eq!(names[6..], [format!("{kind}_1.bias_ih_l1 [{rows}]"), format!("{kind}_1.bias_hh_l1 [{rows}]")]);
        let mut random = |shape: &Shape| Reference::from_fn(shape.clone(), |_| stream.normal());
        let parameters: Vec<_> = graph.parameters().iter().map(|p| random(&p.shape)).collect();
        let x = random(&[2, 4, 3].into());
        let run = |graph: &Graph| {
            let output = graph.outputs()[0].1;
            interpret(graph, std::slice::from_ref(&x), &parameters, &Step::default(), &[output]).unwrap().remove(0)
        };
        let got = run(&graph);
        let last = run(&prediction_graph(&of(false), &Loss::MeanSquaredError, 2).unwrap());
        assert_eq!((got.shape.dims(), last.shape.dims()), (&[2, 4, 5][..], &[2, 5][..]));
        let weights: [&Reference; 8] = std::array::from_fn(|i| &parameters[i]);
        let [lower, upper] = [0, 4].map(|first| std::array::from_fn(|i| weights[first + i]));
        for sample in 0..2 {
            let xs: Vec<_> = x.data[sample * 12..][..12].chunks(3).map(<[f64]>::to_vec).collect();
            let expected = layer(cell, &layer(cell, &xs, lower), upper);
            let close = |got: &[f64], expected: &[f64]| {
                got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-12)
            };
            assert!(close(&got.data[sample * 20..][..20], &expected.concat()), "{cell:?}");
            assert!(close(&last.data[sample * 5..][..5], &expected[3]), "{cell:?}");
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let mut stream = Stream::new(4, "input");
    for cell in [Cell::Lstm, Cell::Gru] {
        let recurrent = Recurrent { cell, layers: 2, ..Recurrent::lstm(4) };
        let model = Sequential::new([6, 2]).layer(recurrent).linear(3);
        check_gradients(&model, Reference::from_fn([3, 6, 2], |_| stream.normal()));
        let every = Sequential::tokens(5)
            .layer(Embedding { vocabulary: 3, width: 4 })
            .layer(Recurrent { sequence: true, ..recurrent })
            .flatten()
            .linear(3);
        check_gradients(&every, Reference::from_fn([3, 5], |i| (i * 5 % 3) as f64));
        check_gradients(
            &Sequential::new([1, 2]).layer(recurrent).linear(3),
            Reference::from_fn([3, 1, 2], |i| i as f64 - 2.0),
        );
    }
}

#[test]
fn layers_that_cannot_work_say_why() {
    let message = |model: Sequential| output_shape(&model).unwrap_err().to_string();
    assert_eq!(
        message(Sequential::new([6]).layer(Recurrent::gru(4))),
        "layer 1 (gru): expected samples of shape [T, C], got [6]"
    );
    assert_eq!(
        message(Sequential::new([6, 2]).layer(Recurrent { layers: 0, ..Recurrent::lstm(4) })),
        "layer 1 (lstm): expected 1 hidden unit and 1 layer or more, got 4 and 0"
    );
    assert_eq!(
        message(Sequential::new([6, 2]).layer(Recurrent::lstm(2000))),
        "layer 1 (lstm): expected at most 1024 hidden units, got 2000"
    );
}

#[test]
fn long_sequences_take_no_more_ops() {
    let nodes = |length: usize| {
        let model = Sequential::new([length, 2]).layer(Recurrent::lstm(4)).linear(3);
        training_graph(&model, &Loss::cross_entropy(), &TensorType::u32([]), 2).unwrap().nodes().len()
    };
    assert_eq!(nodes(2), nodes(500));
}
