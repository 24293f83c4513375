//! The self-test of the optimizers: two updates of a few parameters, against the references in f64.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::{Device, Duty, Engine};
use crate::graph::{Graph, Init};
use crate::op::Fill;
use crate::optim::{Optimizer, ReferenceParameter, UpdatePlan, UpdateRule};
use crate::plan::{Buffer, Dispatch, Layout, Storage};
use crate::rng::Stream;
use crate::tensor::{Named, TensorType};

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
    let rule = UpdateRule::from(*optimizer).clipped(MAX_NORM);
    let mut plan = UpdatePlan::new(&rule, &layout, device.target())?;
    plan.dispatches.iter_mut().for_each(tamper);
    let mut engine = Engine::new(device.clone(), &Storage::new(&layout, 0, true, false), &Duty::Lead(Arc::new(plan)))?;

    let mut stream = Stream::new(11, "update");
    let mut random = || {
        let types = graph.parameters().iter().map(|p| (&p.name, &graph.values()[p.value.index()].ty));
        Named::of(types.map(|(name, ty)| (name, values(Fill::Normal, ty, &mut stream))))
    };
    let weights = random()?;
    write(&mut engine, &layout, Buffer::Parameter(0), &weights)?;
    let mut references: Vec<_> =
        weights.iter().map(|(_, weights)| ReferenceParameter::new(optimizer, weights)).collect();
    for applied in 1..=2 {
        let gradients = random()?;
        write(&mut engine, &layout, Buffer::Gradient(0), &gradients)?;
        engine.update(&optimizer.step(LEARNING_RATE, WEIGHT, applied), None)?;
        let squares = gradients.iter().flat_map(|(_, g)| g).map(|&g| (f64::from(g) / WEIGHT).powi(2));
        let scale = (f64::from(MAX_NORM) / squares.sum::<f64>().sqrt()).min(1.0) / WEIGHT;
        for ((placed, reference), (_, sums)) in layout.parameters().iter().zip(&mut references).zip(&gradients) {
            let Some(treatment) = rule.treatment(placed) else { continue };
            let gradient: Vec<f64> = sums.iter().map(|&sum| f64::from(sum) * scale).collect();
            reference.update(optimizer, treatment, LEARNING_RATE, applied, &gradient);
        }
    }
    let bucket = engine.read(Buffer::Parameter(0))?;
    let got = layout.parameters().iter().flat_map(|p| layout.unpack(p, &bucket)).collect();
    let expected = references.into_iter().flat_map(|r| r.weights).collect();
    Ok(Updated { kernel: optimizer.name(), got, expected })
}

fn values(fill: Fill, ty: &TensorType, stream: &mut Stream) -> Vec<f32> {
    fill.tensor(ty, stream).as_f32().expect("parameters are f32").to_vec()
}

fn write(engine: &mut Engine, layout: &Layout, buffer: Buffer, values: &Named<Vec<f32>>) -> Result<()> {
    if layout.buckets().len() != 1 {
        return Err(Error::Training("the self-test's parameters are in one bucket".into()));
    }
    engine.write(buffer, &layout.pack(0, values)?)
}
