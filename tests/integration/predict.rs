//! Prediction against the references: any number of samples, in padded micro-batches.

use everygpu::graph::interpret;
use everygpu::kernel::Step;
use everygpu::nn::initial_values;
use everygpu::op::{Fill, Reference};
use everygpu::predict::Predictor;
use everygpu::prelude::*;
use everygpu::rng::Stream;
use everygpu::tensor::Named;

use crate::support::F32;

fn tasks() -> Vec<(Task, [usize; 3])> {
    let image = || Sequential::new([1, 6, 5]);
    let classifier = image().conv2d(3, 3, 1).relu().max_pool2d(2).flatten().dropout(0.5).linear(4);
    let regression = image().flatten().linear(7).tanh().linear(2);
    let normalised = image().conv2d(3, 3, 1).batch_norm().flatten().linear(4).batch_norm();
    let classifiers = [classifier, normalised].map(Task::classification);
    classifiers.into_iter().chain([Task::regression(regression, [2])]).map(|task| (task, [1, 6, 5])).collect()
}

#[test]
fn predictions_are_the_references_for_any_number_of_samples() {
    const ROWS: usize = 4;
    for adapter in Adapters::discover().expect("the tests need an adapter").iter() {
        for (task, sample) in tasks() {
            let weights = initial_values(&task.training(1).expect("the model works"), 3);
            let mut predictor = Predictor::new(adapter, &task, &weights, ROWS).expect("the model fits");
            for samples in [1, ROWS - 1, ROWS, 2 * ROWS + 1, 0] {
                let ty = TensorType::f32([&[samples][..], &sample].concat());
                let inputs = Fill::Normal.tensor(&ty, &mut Stream::new(samples as u64, "samples"));
                let got = predictor.predict(&inputs).expect("the device works");
                assert_eq!(got.shape().dims()[0], samples);
                if samples == 0 {
                    continue;
                }
                let graph = task.prediction(samples).expect("the model works");
                let parameters: Vec<_> = graph
                    .parameters()
                    .iter()
                    .map(|p| {
                        let values = &weights[&p.name];
                        Reference::from_fn(p.shape.clone(), |i| f64::from(values[i]))
                    })
                    .collect();
                let wanted = [graph.outputs()[0].1];
                let expected = interpret(&graph, &[Reference::from(&inputs)], &parameters, &Step::default(), &wanted)
                    .expect("the reference runs");
                assert_eq!(*got.shape(), expected[0].shape);
                let error = F32.worst(got.as_f32().expect("predictions are f32"), &expected[0].data);
                assert!(error <= 1.0, "{}: {samples} samples: off by {error} × the tolerance", adapter.label());
            }
        }
    }
}

#[test]
fn samples_of_another_shape_are_refused() {
    let adapters = Adapters::discover().expect("the tests need an adapter");
    let adapter = adapters.iter().next().expect("there is one");
    let (task, _) = tasks().remove(0);
    let weights = initial_values(&task.training(1).expect("the model works"), 3);
    let mut predictor = Predictor::new(adapter, &task, &weights, 2).expect("the model fits");
    let inputs = HostTensor::f32([2, 30], vec![0.0; 60]).expect("the shape is right");
    let error = predictor.predict(&inputs).unwrap_err().to_string();
    assert_eq!(error, "inputs: the model takes samples of f32[1, 6, 5], along a first dimension; got f32[2, 30]");
    let others = Named::of(weights.into_iter().skip(1)).unwrap();
    let error = Predictor::new(adapter, &task, &others, 2).unwrap_err().to_string();
    assert!(error.contains("has no value of its shape"), "{error}");
}
