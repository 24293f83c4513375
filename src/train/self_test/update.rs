//! The self-test of the optimizers: two updates of a few parameters, against the same formulas in f64.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::{Device, Engine, Role};
use crate::graph::{Graph, Init};
use crate::op::Fill;
use crate::optim::{Optimizer, UpdatePlan, UpdateRule};
use crate::plan::{Buffer, Dispatch, Layout, Storage};
use crate::rng::Stream;

/// Samples' weight, learning rate and largest gradient norm of the updates.
const WEIGHT: f64 = 7.0;
const LEARNING_RATE: f64 = 0.05;
const MAX_NORM: f32 = 2.0;

/// Weights after the updates: what the device has, and what is right.
pub(super) struct Updated {
    pub(super) kernel: &'static str,
    pub(super) got: Vec<f32>,
    pub(super) expected: Vec<f64>,
}

/// Runs two updates by `optimizer` on `device`; `tamper` sees each dispatch first.
pub(super) fn updated(device: &Arc<Device>, optimizer: &Optimizer, tamper: &dyn Fn(&mut Dispatch)) -> Result<Updated> {
    let mut graph = Graph::new();
    graph.parameter("weight", [37, 65], Init::Zeros)?;
    graph.parameter("bias", [65], Init::Zeros)?;
    let layout = Arc::new(Layout::new(&graph, device.target())?);
    let mut plan = UpdatePlan::new(&UpdateRule::from(*optimizer).clipped(MAX_NORM), &layout, device.target())?;
    plan.dispatches.iter_mut().for_each(tamper);
    let mut engine = Engine::new(device.clone(), &Storage::new(&layout, 0, true, false), &Role::Lead(Arc::new(plan)))?;

    let mut stream = Stream::new(11, "update");
    let mut random = || -> Vec<(String, Vec<f32>)> {
        let types = graph.parameters().iter().map(|p| (p.name.clone(), &graph.values()[p.value.index()].ty));
        types.map(|(name, ty)| (name, values(Fill::Normal, ty, &mut stream))).collect()
    };
    let weights = random();
    write(&mut engine, &layout, Buffer::Parameter(0), &weights)?;
    let mut oracle = Oracle::new(*optimizer, &weights);
    for applied in 1..=2 {
        let gradients = random();
        write(&mut engine, &layout, Buffer::Gradient(0), &gradients)?;
        engine.update(&optimizer.step(LEARNING_RATE, WEIGHT, applied), None)?;
        oracle.update(&gradients, applied as i32);
    }
    let bucket = engine.read(Buffer::Parameter(0))?;
    let got = layout.parameters().iter().flat_map(|p| layout.unpack(p, &bucket)).collect();
    let kernel = match optimizer {
        Optimizer::Sgd { .. } => "sgd",
        Optimizer::AdamW { .. } => "adamw",
    };
    Ok(Updated { kernel, got, expected: oracle.weights.concat() })
}

fn values(fill: Fill, ty: &crate::tensor::TensorType, stream: &mut Stream) -> Vec<f32> {
    fill.tensor(ty, stream).as_f32().expect("parameters are f32").to_vec()
}

fn write(engine: &mut Engine, layout: &Layout, buffer: Buffer, values: &[(String, Vec<f32>)]) -> Result<()> {
    let find = |name: &str| values.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_slice());
    if layout.buckets().len() != 1 {
        return Err(Error::Training("the self-test's parameters are in one bucket".into()));
    }
    engine.write(buffer, &layout.pack(0, find)?)
}

/// The update rules in f64, parameter by parameter.
struct Oracle {
    optimizer: Optimizer,
    weights: Vec<Vec<f64>>,
    /// By moment and parameter.
    moments: [Vec<Vec<f64>>; 2],
}

impl Oracle {
    fn new(optimizer: Optimizer, weights: &[(String, Vec<f32>)]) -> Self {
        let weights: Vec<Vec<f64>> = weights.iter().map(|(_, w)| w.iter().map(|&x| f64::from(x)).collect()).collect();
        let zeros: Vec<Vec<f64>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
        Self { optimizer, weights, moments: [zeros.clone(), zeros] }
    }

    /// One update by gradient sums; `applied` counts from 1. The first parameter decays, the second (a bias) does not.
    fn update(&mut self, sums: &[(String, Vec<f32>)], applied: i32) {
        let squares = sums.iter().flat_map(|(_, g)| g).map(|&g| (f64::from(g) / WEIGHT).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        let scale = (f64::from(MAX_NORM) / norm).min(1.0) / WEIGHT;
        for (index, (_, sums)) in sums.iter().enumerate() {
            let decays = if index == 0 { 1.0 } else { 0.0 };
            for (i, &sum) in sums.iter().enumerate() {
                let g = f64::from(sum) * scale;
                let w = &mut self.weights[index][i];
                let [first, second] = &mut self.moments;
                let (m, v) = (&mut first[index][i], &mut second[index][i]);
                match self.optimizer {
                    Optimizer::Sgd { momentum, weight_decay } => {
                        *m = f64::from(momentum) * *m + g + decays * f64::from(weight_decay) * *w;
                        *w -= LEARNING_RATE * *m;
                    }
                    Optimizer::AdamW { beta1, beta2, epsilon, weight_decay } => {
                        let [beta1, beta2] = [beta1, beta2].map(f64::from);
                        *m = beta1 * *m + (1.0 - beta1) * g;
                        *v = beta2 * *v + (1.0 - beta2) * g * g;
                        let (m, v) = (*m / (1.0 - beta1.powi(applied)), *v / (1.0 - beta2.powi(applied)));
                        *w *= 1.0 - LEARNING_RATE * decays * f64::from(weight_decay);
                        *w -= LEARNING_RATE * m / (v.sqrt() + f64::from(epsilon));
                    }
                }
            }
        }
    }
}
