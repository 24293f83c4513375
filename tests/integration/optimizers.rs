//! Updates on devices against the formulas in f64, over several buckets and steps; what happens to gradients that are not
//! finite; clipping.

use std::sync::Arc;

use everygpu::data::{Dataset, TensorDataset};
use everygpu::gpu::{Device, Engine, Role};
use everygpu::graph::{Graph, Init};
use everygpu::nn::Sequential;
use everygpu::op::{Target, Tolerance};
use everygpu::optim::{NormOutcome, Optimizer, Schedule, UpdatePlan, UpdateRule};
use everygpu::plan::{Buffer, Layout, Storage};
use everygpu::rng::Stream;
use everygpu::tensor::HostTensor;
use everygpu::train::{Split, Task, TrainOptions};

use crate::training::*;

/// Three f32 roundings a step of values around 1, over six steps; AdamW divides by a root that is itself rounded.
const TOLERANCE: Tolerance = Tolerance { absolute: 3e-6, relative: 3e-6 };
const STEPS: u64 = 6;

/// Matrices (which decay) and vectors (which do not) in buckets of at most 4 KiB: a vector between two matrices, one that
/// fills its bucket to the last byte, and single elements.
fn parameters() -> (Graph, Arc<Layout>) {
    let mut graph = Graph::new();
    let shapes: [&[usize]; 7] = [&[33, 29], &[33], &[7, 65], &[1], &[512], &[2, 512], &[3, 1, 1]];
    for (i, shape) in shapes.iter().enumerate() {
        graph.parameter(&format!("p{i}"), shape.to_vec(), Init::Zeros).unwrap();
    }
    let layout = Layout::new(&graph, &Target { max_binding: 4096, ..Target::default() }).unwrap();
    assert!(layout.buckets().len() >= 3, "{:?}", layout.buckets());
    (graph, Arc::new(layout))
}

/// The optimizer in f64, on one parameter.
struct Formula {
    optimizer: Optimizer,
    decays: bool,
    weights: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Formula {
    fn step(&mut self, t: u64, learning_rate: f64, gradient: impl Fn(usize) -> f64) {
        for i in 0..self.weights.len() {
            let (w, m, v, g) = (&mut self.weights[i], &mut self.first[i], &mut self.second[i], gradient(i));
            match self.optimizer {
                Optimizer::Sgd { momentum, weight_decay } => {
                    let decay = if self.decays { f64::from(weight_decay) } else { 0.0 };
                    *m = f64::from(momentum) * *m + g + decay * *w;
                    *w -= learning_rate * *m;
                }
                Optimizer::AdamW { beta1, beta2, epsilon, weight_decay } => {
                    let (beta1, beta2) = (f64::from(beta1), f64::from(beta2));
                    let decay = if self.decays { f64::from(weight_decay) } else { 0.0 };
                    *m = beta1 * *m + (1.0 - beta1) * g;
                    *v = beta2 * *v + (1.0 - beta2) * g * g;
                    let (m_hat, v_hat) = (*m / (1.0 - beta1.powf(t as f64)), *v / (1.0 - beta2.powf(t as f64)));
                    *w -= learning_rate * decay * *w + learning_rate * m_hat / (v_hat.sqrt() + f64::from(epsilon));
                }
            }
        }
    }
}

/// An engine that leads, with room for checks.
struct Bench {
    engine: Engine,
    layout: Arc<Layout>,
    optimizer: Optimizer,
}

impl Bench {
    fn new(device: &Arc<Device>, optimizer: Optimizer, clip: Option<f32>) -> Self {
        let (_, layout) = parameters();
        let plan =
            UpdatePlan::new(&UpdateRule { clip_norm: clip, ..UpdateRule::from(optimizer) }, &layout, device.target())
                .unwrap();
        let storage = Storage::new(&layout, 1, true, true);
        let engine = Engine::new(device.clone(), &storage, &Role::Lead(Arc::new(plan))).unwrap();
        Self { engine, layout, optimizer }
    }

    fn write(&mut self, to: impl Fn(usize) -> Buffer, values: &[(String, Vec<f32>)]) {
        for bucket in 0..self.layout.buckets().len() {
            let find = |name: &str| values.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_slice());
            self.engine.write(to(bucket), &self.layout.pack(bucket, find).unwrap()).unwrap();
        }
    }

    fn read(&mut self, from: impl Fn(usize) -> Buffer) -> Weights {
        let buckets: Vec<Vec<u8>> =
            (0..self.layout.buckets().len()).map(|b| self.engine.read(from(b)).unwrap()).collect();
        let parameters = self.layout.parameters().iter();
        parameters.map(|p| (p.name.clone(), self.layout.unpack(p, &buckets[p.bucket]))).collect()
    }

    /// Weights and moments.
    fn state(&mut self) -> Vec<Weights> {
        let mut state = vec![self.read(Buffer::Parameter)];
        for moment in 0..self.optimizer.moments().len() {
            state.push(self.read(|bucket| Buffer::State { moment, bucket }));
        }
        state
    }

    fn random(&self, name: &str, scale: f64) -> Weights {
        let mut stream = Stream::new(9, name);
        let mut values = |n: u64| (0..n).map(|_| (scale * stream.normal()) as f32).collect();
        self.layout.parameters().iter().map(|p| (p.name.clone(), values(p.bytes / 4))).collect()
    }
}

const OPTIMIZERS: [Optimizer; 5] = [
    Optimizer::Sgd { momentum: 0.0, weight_decay: 0.0 },
    Optimizer::Sgd { momentum: 0.9, weight_decay: 0.1 },
    Optimizer::Sgd { momentum: 0.0, weight_decay: 0.1 },
    Optimizer::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1 },
    Optimizer::AdamW { beta1: 0.8, beta2: 0.95, epsilon: 1e-4, weight_decay: 0.0 },
];

/// The largest error of weights and moments after six steps, in units of the tolerance, on one device; the formulas are
/// those of `expected`, which a right update has in common with `optimizer`.
fn error_of(device: &Arc<Device>, optimizer: Optimizer, expected: Optimizer, decay_vectors: bool) -> f64 {
    let weight_sum = 12.5;
    let mut bench = Bench::new(device, optimizer, None);
    let start = bench.random("start", 1.0);
    bench.write(Buffer::Parameter, &start);
    let mut formulas: Vec<Formula> = bench
        .layout
        .parameters()
        .iter()
        .zip(&start)
        .map(|(placed, (_, values))| Formula {
            optimizer: expected,
            decays: placed.shape.rank() > 1 || decay_vectors,
            weights: values.iter().map(|&v| f64::from(v)).collect(),
            first: vec![0.0; values.len()],
            second: vec![0.0; values.len()],
        })
        .collect();
    for step in 1..=STEPS {
        let learning_rate = 0.02 * step as f64;
        let sums = bench.random(&format!("gradient {step}"), 10.0);
        bench.write(Buffer::Gradient, &sums);
        let outcome = bench.engine.update(&optimizer.step(learning_rate, weight_sum, step), None).unwrap();
        let squares: f64 = sums.iter().flat_map(|(_, v)| v).map(|&g| (f64::from(g) / weight_sum).powi(2)).sum();
        assert!((f64::from(outcome.norm) / squares.sqrt() - 1.0).abs() < 1e-6, "{outcome:?}, {}", squares.sqrt());
        assert_eq!(outcome.applied, 1);
        for (formula, (_, sums)) in formulas.iter_mut().zip(&sums) {
            formula.step(step, learning_rate, |i| f64::from(sums[i]) / weight_sum);
        }
    }
    let state = bench.state();
    let of = |index: usize, pick: fn(&Formula) -> &Vec<f64>| {
        state.get(index).map_or(0.0, |found| {
            found.iter().zip(&formulas).map(|((_, v), f)| TOLERANCE.worst(v, pick(f))).fold(0.0, f64::max)
        })
    };
    of(0, |f| &f.weights).max(of(1, |f| &f.first)).max(of(2, |f| &f.second))
}

#[test]
fn updates_follow_the_formulas_on_every_adapter() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for optimizer in OPTIMIZERS {
            let error = error_of(&device, optimizer, optimizer, false);
            assert!(error <= 1.0, "{}: {optimizer:?} is off by {error:.1} × the tolerance", adapter.label());
        }
    }
}

#[test]
fn the_comparison_of_updates_can_fail() {
    let device = &devices(1)[0];
    let adamw = OPTIMIZERS[3];
    assert!(error_of(device, adamw, adamw, true) > 1.0, "decay of vectors");
    let other = Optimizer::AdamW { beta1: 0.9, beta2: 0.998, epsilon: 1e-8, weight_decay: 0.1 };
    assert!(error_of(device, adamw, other, false) > 1.0, "another beta");
    let sgd = OPTIMIZERS[1];
    assert!(error_of(device, sgd, Optimizer::Sgd { momentum: 0.9, weight_decay: 0.101 }, false) > 1.0, "another decay");
}

#[test]
fn the_norm_clips_over_all_buckets() {
    for adapter in adapters() {
        for (max_norm, clips) in [(0.5_f32, true), (1e6, false)] {
            let optimizer = Optimizer::sgd(0.0);
            let mut bench = Bench::new(&open(&adapter, None), optimizer, Some(max_norm));
            let start = bench.random("start", 1.0);
            let sums = bench.random("gradient", 1.0);
            bench.write(Buffer::Parameter, &start);
            bench.write(Buffer::Gradient, &sums);
            let outcome = bench.engine.update(&optimizer.step(1.0, 2.0, 1), None).unwrap();
            let norm = sums.iter().flat_map(|(_, v)| v).map(|&g| (f64::from(g) / 2.0).powi(2)).sum::<f64>().sqrt();
            let moved = distance_squared(&bench.read(Buffer::Parameter), &start).sqrt();
            let expected = if clips { f64::from(max_norm) } else { norm };
            assert!((f64::from(outcome.norm) / norm - 1.0).abs() < 1e-6, "the norm is the one before clipping");
            assert!((moved / expected - 1.0).abs() < 1e-5, "moved by {moved}, expected {expected}");
        }
    }
}

fn distance_squared(a: &Weights, b: &Weights) -> f64 {
    let pairs = a.iter().zip(b).flat_map(|((_, x), (_, y))| x.iter().zip(y));
    pairs.map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum()
}

fn bits(state: &[Weights]) -> Vec<u32> {
    state.iter().flatten().flat_map(|(_, v)| v).map(|v| v.to_bits()).collect()
}

/// Wherever it stands, one gradient that is not finite leaves every bit of weights and moments as it was.
#[test]
fn a_gradient_that_is_not_finite_changes_nothing_anywhere() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for optimizer in [OPTIMIZERS[0], OPTIMIZERS[1], OPTIMIZERS[3]] {
            for clip in [None, Some(1.0)] {
                let mut bench = Bench::new(&device, optimizer, clip);
                let (start, good) = (bench.random("start", 1.0), bench.random("gradient", 1.0));
                bench.write(Buffer::Parameter, &start);
                let update = |bench: &mut Bench, gradients: &Weights, t| -> NormOutcome {
                    bench.write(Buffer::Gradient, gradients);
                    bench.engine.update(&optimizer.step(0.1, 2.0, t), None).unwrap()
                };
                assert_eq!(update(&mut bench, &good, 1).applied, 1);
                let before = bits(&bench.state());
                let last = good.len() - 1;
                for (parameter, element) in [(0, 0), (0, 956), (1, 32), (3, 0), (5, 1023), (last, 2)] {
                    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let mut bad = good.clone();
                        bad[parameter].1[element] = value;
                        let outcome = update(&mut bench, &bad, 2);
                        assert_eq!(outcome.applied, 0, "{value} in element {element} of p{parameter}");
                        assert!(!outcome.norm.is_finite());
                        assert_eq!(bits(&bench.state()), before, "{value} in element {element} of p{parameter}");
                    }
                }
                assert_eq!(update(&mut bench, &good, 2).applied, 1);
                assert_ne!(bits(&bench.state()), before);
            }
        }
    }
}

/// Samples of 1e30 are finite, as data must be, but their squared error is not, nor is its gradient.
fn overflowing(n: usize, bad: &[usize]) -> Arc<dyn Dataset> {
    let mut x: Vec<f32> = (0..n).map(|i| 0.1 * i as f32).collect();
    bad.iter().for_each(|&i| x[i] = 1e30);
    let x = HostTensor::f32([n, 1], x).unwrap();
    Arc::new(TensorDataset::regression(x, HostTensor::f32([n, 1], vec![1.0; n]).unwrap()).unwrap())
}

#[test]
fn a_step_that_is_not_finite_is_skipped_everywhere_and_reported() {
    let task = Task::regression(Sequential::new([1]).linear(1), [1]);
    let options = TrainOptions {
        epochs: 2,
        split: Split::Weights(vec![3.0, 1.0]),
        schedule: Schedule::constant(0.01),
        optimizer: Optimizer::adamw(),
        nonfinite_limit: 3,
        ..options(4)
    };
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let mut recorder = Recorder::default();
    trainer.fit(&overflowing(16, &[5]), None, &mut recorder).unwrap();
    let skipped: Vec<bool> = recorder.steps.iter().map(|s| !s.applied).collect();
    assert_eq!(skipped.iter().filter(|s| **s).count(), 2, "one step an epoch holds the bad sample: {skipped:?}");
    for step in &recorder.steps {
        assert_eq!(step.applied, step.gradient_norm.is_finite());
        assert_eq!(step.applied, step.loss.is_finite());
    }
    assert_eq!((trainer.position().step, trainer.position().applied), (8, 6));
    let weights = agreed_weights(&mut trainer);
    assert!(weights.iter().all(|(_, v)| v.iter().all(|v| v.is_finite())));

    // Without the bad sample's batches the same run: a skipped step is as if it had not been, but for the rate's schedule.
    let start = everygpu::nn::initial_values(&task.training(1).unwrap(), options.seed);
    assert!(distance(&weights, &start) > 0.0);
}

#[test]
fn a_run_of_steps_that_are_not_finite_ends_the_training() {
    let task = Task::regression(Sequential::new([1]).linear(1), [1]);
    let options = TrainOptions { nonfinite_limit: 3, ..options(4) };
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let before = agreed_weights(&mut trainer);
    let mut recorder = Recorder::default();
    let all: Vec<usize> = (0..16).collect();
    let error = trainer.fit(&overflowing(16, &all), None, &mut recorder).unwrap_err().to_string();
    assert!(error.contains("not finite in 3 updates in a row, up to step 2"), "{error}");
    assert_eq!(distance(&agreed_weights(&mut trainer), &before), 0.0);
    assert!(recorder.steps.iter().all(|s| !s.applied));
}
