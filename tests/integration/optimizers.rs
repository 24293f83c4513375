//! Updates on devices against the references in f64, over several buckets and steps; clipping.

use std::sync::Arc;

use everygpu::gpu::{Device, Duty, Engine};
use everygpu::graph::{Graph, Init};
use everygpu::kernel::Target;
use everygpu::op::Tolerance;
use everygpu::optim::{Group, Groups, NormOutcome, Optimizer, ReferenceParameter, UpdatePlan, UpdateRule};
use everygpu::plan::{Buffer, Layout, Storage};
use everygpu::rng::Stream;
use everygpu::tensor::Named;

use crate::training::*;

/// A few f32 roundings a step of values around 1, over six steps; what divides by a root divides by a rounded one.
pub const TOLERANCE: Tolerance = Tolerance { absolute: 3e-6, relative: 3e-6 };
pub const STEPS: u64 = 6;

/// The parameters p0, p1, … of these shapes in buckets of at most `max_binding` bytes.
pub fn placed(shapes: &[&[usize]], max_binding: u64) -> Arc<Layout> {
    let mut graph = Graph::new();
    for (i, shape) in shapes.iter().enumerate() {
        graph.parameter(&format!("p{i}"), shape.to_vec(), Init::Zeros).unwrap();
    }
    Arc::new(Layout::new(&graph, &Target { max_binding, ..Target::default() }).unwrap())
}

/// Matrices (which decay) and vectors (which do not) in buckets of at most 4 KiB: a vector between two matrices, one
/// that fills its bucket to the last byte, and single elements.
pub fn small() -> Arc<Layout> {
    let layout = placed(&[&[33, 29], &[33], &[7, 65], &[1], &[512], &[2, 512], &[3, 1, 1]], 4096);
    assert!(layout.buckets().len() >= 3, "{:?}", layout.buckets());
    layout
}

/// Parameters that take 3, 1, 2 and 1 workgroups of a pass that sums them, the second of them to the last element.
fn large() -> Arc<Layout> {
    placed(&[&[131, 301], &[128, 128], &[16_385], &[5, 7]], ONE_BUCKET)
}

/// An engine that leads, with room for checks.
pub struct Bench {
    engine: Engine,
    layout: Arc<Layout>,
    pub rule: UpdateRule,
}

impl Bench {
    pub fn new(device: &Arc<Device>, rule: UpdateRule, layout: Arc<Layout>) -> Self {
        let plan = UpdatePlan::new(&rule, &layout, device.target()).unwrap();
        let storage = Storage::new(&layout, 1, true, true);
        let engine = Engine::new(device.clone(), &storage, &Duty::Lead(Arc::new(plan))).unwrap();
        Self { engine, layout, rule }
    }

    /// One update by `sums`, whose weight is `weight_sum`; the `t`-th.
    pub fn update(&mut self, sums: &Weights, learning_rate: f64, weight_sum: f64, t: u64) -> NormOutcome {
        self.write(Buffer::Gradient, sums);
        self.engine.update(&self.rule.optimizer.step(learning_rate, weight_sum, t), None).unwrap()
    }

    /// Each parameter's reference, at `weights`.
    fn references(&self, weights: &Weights) -> Vec<ReferenceParameter> {
        weights.iter().map(|(_, values)| ReferenceParameter::new(&self.rule.optimizer, values)).collect()
    }

    pub fn write(&mut self, to: impl Fn(usize) -> Buffer, values: &Weights) {
        for bucket in 0..self.layout.buckets().len() {
            self.engine.write(to(bucket), &self.layout.pack(bucket, values).unwrap()).unwrap();
        }
    }

    pub fn read(&mut self, from: impl Fn(usize) -> Buffer) -> Weights {
        let buckets: Vec<Vec<u8>> =
            (0..self.layout.buckets().len()).map(|b| self.engine.read(from(b)).unwrap()).collect();
        let parameters = self.layout.parameters().iter();
        Named::of(parameters.map(|p| (&p.name, self.layout.unpack(p, &buckets[p.bucket])))).unwrap()
    }

    /// Weights and moments.
    pub fn state(&mut self) -> Vec<Weights> {
        let mut state = vec![self.read(Buffer::Parameter)];
        for moment in 0..self.rule.moments().len() {
            state.push(self.read(|bucket| Buffer::State { moment, bucket }));
        }
        state
    }

    pub fn random(&self, name: &str, scale: f64) -> Weights {
        let mut stream = Stream::new(9, name);
        let mut values = |n: u64| (0..n).map(|_| (scale * stream.normal()) as f32).collect();
        Named::of(self.layout.parameters().iter().map(|p| (&p.name, values(p.bytes / 4)))).unwrap()
    }
}

/// Each optimizer in each form that its kernels take, some with other settings than the usual.
fn optimizers() -> Vec<Optimizer> {
    let mut all = Optimizer::variants();
    for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.8, true)] {
        all.push(Optimizer::Sgd { momentum, nesterov, weight_decay: 0.1 });
    }
    all.extend([
        Optimizer::Adam { beta1: 0.8, beta2: 0.95, epsilon: 1e-4, weight_decay: 0.1 },
        Optimizer::AdamW { beta1: 0.8, beta2: 0.95, epsilon: 1e-4, weight_decay: 0.0 },
        adamw(),
        Optimizer::RmsProp { alpha: 0.9, epsilon: 1e-3, momentum: 0.5, centered: true, weight_decay: 0.1 },
        Optimizer::Adagrad { lr_decay: 0.3, epsilon: 1e-4, initial_accumulator: 0.5, weight_decay: 0.1 },
        Optimizer::Lion { beta1: 0.8, beta2: 0.95, weight_decay: 0.1 },
        Optimizer::Lamb { beta1: 0.8, beta2: 0.95, epsilon: 1e-4, clamp: [0.0, 10.0], weight_decay: 0.1 },
    ]);
    all
}

pub fn adamw() -> Optimizer {
    Optimizer::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1 }
}

/// The largest error of weights and moments after six steps, in units of the tolerance, on one device; the reference
/// goes by `expected`, which a right update has in common with `rule`.
pub fn error_of(device: &Arc<Device>, rule: &UpdateRule, expected: &UpdateRule, layout: &Arc<Layout>) -> f64 {
    let weight_sum = 12.5;
    let mut bench = Bench::new(device, rule.clone(), layout.clone());
    let start = bench.random("start", 1.0);
    bench.write(Buffer::Parameter, &start);
    let mut references = bench.references(&start);
    for step in 1..=STEPS {
        let learning_rate = 0.02 * step as f64;
        let sums = bench.random(&format!("gradient {step}"), 10.0);
        let outcome = bench.update(&sums, learning_rate, weight_sum, step);
        let treatments: Vec<_> = layout.parameters().iter().map(|placed| expected.treatment(placed)).collect();
        let updated = sums.iter().zip(&treatments).filter(|(_, treatment)| treatment.is_some());
        let squares: f64 = updated.flat_map(|((_, v), _)| v).map(|&g| (f64::from(g) / weight_sum).powi(2)).sum();
        let norm = squares.sqrt();
        assert!((f64::from(outcome.norm) / norm - 1.0).abs() < 1e-6, "{outcome:?}, {norm}");
        assert_eq!(outcome.applied, 1);
        let clipped = expected.clip_norm.map_or(1.0, |most| (f64::from(most) / norm).min(1.0));
        for ((reference, (_, sums)), treatment) in references.iter_mut().zip(&sums).zip(treatments) {
            let gradient: Vec<f64> = sums.iter().map(|&sum| clipped * f64::from(sum) / weight_sum).collect();
            if let Some(treatment) = treatment {
                reference.update(&expected.optimizer, treatment, learning_rate, step, &gradient);
            }
        }
    }
    let mut state = bench.state().into_iter();
    let worst = |found: Weights, of: &dyn Fn(&ReferenceParameter) -> Vec<f64>| {
        let pairs = found.iter().zip(&references);
        pairs.map(|((_, found), reference)| TOLERANCE.worst(found, &of(reference))).fold(0.0, f64::max)
    };
    let weights = worst(state.next().unwrap(), &|reference| reference.weights.clone());
    state.enumerate().map(|(i, moment)| worst(moment, &|r| r.moments[i].clone())).fold(weights, f64::max)
}

#[test]
fn updates_follow_the_references_on_every_adapter() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for optimizer in optimizers() {
            for clip in [None, Some(3.0)] {
                let rule = UpdateRule { clip_norm: clip, ..optimizer.into() };
                let error = error_of(&device, &rule, &rule, &small());
                assert!(error <= 1.0, "{}: {rule:?} is off by {error:.1} × the tolerance", adapter.label());
            }
        }
    }
}

/// Norms of parameters that several workgroups sum, with bounds that hold some of them.
#[test]
fn lamb_scales_each_parameter_by_its_own_norms() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for clamp in [[0.0, 10.0], [0.0, 1e4], [100.0, 150.0]] {
            let optimizer = Optimizer::Lamb { beta1: 0.9, beta2: 0.999, epsilon: 1e-6, clamp, weight_decay: 0.1 };
            let error = error_of(&device, &optimizer.into(), &optimizer.into(), &large());
            assert!(error <= 1.0, "{}: {optimizer:?} is off by {error:.1} × the tolerance", adapter.label());
        }
        let optimizer =
            |high| Optimizer::Lamb { beta1: 0.9, beta2: 0.999, epsilon: 1e-6, clamp: [0.0, high], weight_decay: 0.1 };
        let other = error_of(&device, &optimizer(10.0).into(), &optimizer(10.1).into(), &large());
        assert!(other > 1.0, "another bound is seen");
    }
}

/// Where the weights or their step are zero, the step is Adam's.
#[test]
fn lamb_takes_a_ratio_of_one_where_a_norm_is_zero() {
    let device = &devices(1)[0];
    let mut bench = Bench::new(device, Optimizer::lamb().into(), large());
    let zeros: Weights = bench.random("", 0.0);
    let sums = bench.random("gradient", 1.0);
    bench.write(Buffer::Parameter, &zeros);
    assert_eq!(bench.update(&sums, 0.5, 1.0, 1).applied, 1);
    for ((_, weights), (_, sums)) in bench.read(Buffer::Parameter).iter().zip(&sums) {
        // m̂/√v̂ is the gradient's sign after one step.
        let expected: Vec<f64> = sums.iter().map(|&g| -0.5 * f64::from(g) / (f64::from(g).abs() + 1e-6)).collect();
        assert!(Tolerance { absolute: 1e-6, relative: 1e-5 }.worst(weights, &expected) <= 1.0);
    }
}

#[test]
fn the_comparison_of_updates_can_fail() {
    let device = &devices(1)[0];
    let error = |rule: &UpdateRule, expected: &UpdateRule| error_of(device, rule, expected, &small());
    let rule = UpdateRule::from(adamw());
    let decayed = UpdateRule { groups: Groups { decay_rank_1: true, ..Groups::default() }, ..rule.clone() };
    assert!(error(&rule, &decayed) > 1.0, "decay of vectors");
    let other = Optimizer::AdamW { beta1: 0.9, beta2: 0.998, epsilon: 1e-8, weight_decay: 0.1 };
    assert!(error(&rule, &other.into()) > 1.0, "another beta");
    let sgd = |nesterov, weight_decay| Optimizer::Sgd { momentum: 0.9, nesterov, weight_decay }.into();
    assert!(error(&sgd(false, 0.1), &sgd(false, 0.101)) > 1.0, "another decay");
    assert!(error(&sgd(false, 0.1), &sgd(true, 0.1)) > 1.0, "another momentum");
    let slower = UpdateRule {
        groups: Groups { list: vec![Group { lr_scale: 0.999, ..Group::new("p3") }], ..Groups::default() },
        ..rule.clone()
    };
    assert!(error(&rule, &slower) > 1.0, "another rate");
    assert!(error(&adagrad(0.0), &adagrad(0.001)) > 1.0, "another start of the sum");
}

fn adagrad(initial_accumulator: f32) -> UpdateRule {
    Optimizer::Adagrad { lr_decay: 0.0, epsilon: 1e-10, initial_accumulator, weight_decay: 0.0 }.into()
}

#[test]
fn the_norm_clips_over_all_buckets() {
    for adapter in adapters() {
        for (max_norm, clips) in [(0.5_f32, true), (1e6, false)] {
            let rule = UpdateRule::from(Optimizer::sgd(0.0)).clipped(max_norm);
            let mut bench = Bench::new(&open(&adapter, None), rule, small());
            let start = bench.random("start", 1.0);
            let sums = bench.random("gradient", 1.0);
            bench.write(Buffer::Parameter, &start);
            let outcome = bench.update(&sums, 1.0, 2.0, 1);
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
