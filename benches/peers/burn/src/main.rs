//! `peer-burn MODEL STEPS`: times a training step of `mlp`, `cnn` or `gpt` with Burn on wgpu, on random data. Prints
//! Burn's version, the number of parameters, and the median in milliseconds; a step ends when the device has done it.

#![recursion_limit = "256"]

mod models;

use std::time::Instant;

use burn::nn::loss::CrossEntropyLoss;
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::Distribution;

use models::{Cnn, Gpt, Mlp};

/// Steps in which kernels are compiled and chosen.
const WARM_UP: usize = 5;

/// What `BURN_DEVICE` names; a software adapter where it names none.
fn device() -> Device {
    Device::wgpu(match std::env::var("BURN_DEVICE").as_deref() {
        Ok("discrete") => DeviceKind::DiscreteGpu(0),
        Ok("integrated") => DeviceKind::IntegratedGpu(0),
        Ok("virtual") => DeviceKind::VirtualGpu(0),
        _ => DeviceKind::Cpu,
    })
}

/// Numbers below `bound` that look random (a linear congruential generator with Knuth's constants).
fn below(bound: u64, count: usize) -> Vec<i32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % bound) as i32
    };
    (0..count).map(|_| next()).collect()
}

/// Steps of `model` by Adam; what is to be printed.
fn time<M: Module>(mut model: M, device: &Device, steps: usize, loss: impl Fn(&M) -> Tensor<1>) -> String {
    let mut optimizer = AdamConfig::new().init();
    let parameters = model.num_params();
    let mut milliseconds = Vec::new();
    for _ in 0..WARM_UP + steps {
        let begin = Instant::now();
        let gradients = GradientsParams::from_grads(loss(&model).backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        device.sync().expect("the device works");
        milliseconds.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let timed = &mut milliseconds[WARM_UP..];
    timed.sort_by(f64::total_cmp);
    format!("Burn 0.22.1\n{parameters}\n{}", timed[steps / 2])
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, steps) = match &arguments[..] {
        [name, steps] => (name.as_str(), steps.parse::<usize>().ok().filter(|steps| *steps > 0)),
        _ => ("", None),
    };
    let device = &device().autodiff();
    let entropy = CrossEntropyLoss::new(None, device);
    let labels = |count, classes| Tensor::<1, Int>::from_ints(below(classes, count).as_slice(), device);
    let report = match (name, steps) {
        ("mlp", Some(steps)) => {
            let (x, y) = (Tensor::<2>::random([256, 784], Distribution::Default, device), labels(256, 10));
            time(Mlp::new(device), device, steps, |model: &Mlp| entropy.forward(model.forward(x.clone()), y.clone()))
        }
        ("cnn", Some(steps)) => {
            let (x, y) = (Tensor::<4>::random([64, 1, 28, 28], Distribution::Default, device), labels(64, 10));
            time(Cnn::new(device), device, steps, |model: &Cnn| entropy.forward(model.forward(x.clone()), y.clone()))
        }
        ("gpt", Some(steps)) => {
            let (rows, length, vocabulary) = (8, 128, 256);
            let tokens = labels(rows * length, vocabulary).reshape::<2, _>([rows, length]);
            let next = labels(rows * length, vocabulary);
            let model = Gpt::new(vocabulary as usize, length, 128, 4, 4, device);
            time(model, device, steps, |model: &Gpt| {
                let logits = model.forward(tokens.clone(), device);
                entropy.forward(logits.reshape::<2, _>([rows * length, vocabulary as usize]), next.clone())
            })
        }
        _ => {
            eprintln!("usage: peer-burn mlp|cnn|gpt STEPS");
            std::process::exit(2);
        }
    };
    println!("{report}");
}
