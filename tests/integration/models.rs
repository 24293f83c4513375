//! Ready models and recurrent layers on devices: they learn a dozen samples by heart.

use std::sync::Arc;

use everygpu::data::{Dataset, TensorDataset};
use everygpu::nn::Sequential;
use everygpu::nn::layers::{MeanPositions, Recurrent};
use everygpu::nn::models::{Autoencoder, Gpt, MobileNet, Norm, ResNet, Vit, lenet, mlp};
use everygpu::optim::{Optimizer, Schedule};
use everygpu::tensor::HostTensor;
use everygpu::train::{Task, TrainOptions};

use crate::training::{Recorder, classes, devices, options, trainer_on};

const SAMPLES: usize = 12;

/// Steps, each over all samples.
const STEPS: u64 = 24;

/// Trains on two devices and checks that the loss falls by a tenth at least: in less, rounding decides.
#[track_caller]
fn learns(name: &str, task: &Task, data: TensorDataset) {
    let options = TrainOptions {
        epochs: STEPS,
        optimizer: Optimizer::adamw(),
        schedule: Schedule::constant(0.003),
        ..options(SAMPLES)
    };
    let mut recorder = Recorder::default();
    let data: Arc<dyn Dataset> = Arc::new(data);
    trainer_on(&devices(2), task, &options).fit(&data, None, &mut recorder).expect("it trains");
    let losses: Vec<f64> = recorder.steps.iter().map(|step| step.loss).collect();
    let last = losses.iter().rev().take(4).sum::<f64>() / 4.0;
    assert!(last < 0.9 * losses[0], "{name}: {losses:?}");
}

/// Random tokens, with a class each.
fn tokens(length: usize, vocabulary: u32) -> TensorDataset {
    let inputs = (0..SAMPLES * length).map(|i| (i * i + i / length) as u32 % vocabulary).collect();
    let labels = (0..SAMPLES as u32).map(|i| i % 3).collect();
    let names = (0..vocabulary).map(|c| c.to_string()).collect();
    TensorDataset::classification(HostTensor::u32([SAMPLES, length], inputs).unwrap(), labels, names).unwrap()
}

#[test]
fn every_ready_model_learns() {
    let image = [1, 12, 12];
    let batch = Norm::Batch(4);
    let small = ResNet { stages: vec![1, 1], width: 8, norm: batch, ..ResNet::small(8, 3).unwrap() };
    let models: Vec<(&str, Sequential)> = vec![
        ("mlp", mlp(image, &[16], 3)),
        ("lenet", lenet(image, 3)),
        ("resnet", small.build(image)),
        ("bottleneck", ResNet { bottleneck: true, ..small.norm(Norm::Group(2)) }.build(image)),
        ("mobilenet", MobileNet { width: 0.125, stride: 1, norm: Norm::Group(2), ..MobileNet::new(3) }.build(image)),
        ("vit", Vit { dropout: 0.05, ..Vit::new(3, 4, 16, 2, 2) }.build(image).unwrap()),
    ];
    for (name, model) in models {
        learns(name, &Task::classification(model), classes(SAMPLES, &image, 3, 1));
    }
}

#[test]
fn an_autoencoder_learns_to_give_its_input_back() {
    let image = [1, 7, 10];
    let data = classes(SAMPLES, &image, 3, 1).reconstruction().unwrap();
    learns("autoencoder", &Task::regression(Autoencoder::new(&[4, 8]).build(image).unwrap(), image), data);
}

#[test]
fn a_gpt_learns() {
    let gpt = Gpt { dropout: 0.05, ..Gpt::new(7, 6, 16, 2, 2) };
    for gpt in [gpt, Gpt { tied: false, rotary: Some(100.0), bias: false, ..gpt }] {
        let model = gpt.build().unwrap().layer(MeanPositions);
        learns(&format!("{gpt:?}"), &Task::classification(model), tokens(6, 7));
    }
}

#[test]
fn recurrent_layers_learn() {
    for layer in [Recurrent::lstm(16), Recurrent { layers: 2, ..Recurrent::gru(12) }] {
        let model = Sequential::new([20, 3]).layer(layer).linear(3);
        learns(&format!("{layer:?}"), &Task::classification(model), classes(SAMPLES, &[20, 3], 3, 1));
    }
}
