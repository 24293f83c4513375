//! Prediction with trained weights, on one adapter.

use std::sync::Arc;

use crate::checkpoint::Snapshot;
use crate::error::{Error, Result};
use crate::gpu::{Adapter, Device, Duty, Engine, Executable, MicroBatch};
use crate::graph::Graph;
use crate::kernel::Step;
use crate::plan::{Buffer, Layout, Plan, Storage};
use crate::self_test::usable;
use crate::tensor::{Elements, HostTensor, Named, TensorType};
use crate::train::{Task, saved_weights};

/// A model with its weights on a device, ready to predict. It holds no gradients and no optimizer state.
///
/// ```no_run
/// # use everygpu::prelude::*;
/// # fn predict(task: &Task, snapshot: &everygpu::checkpoint::Snapshot, images: &HostTensor) -> Result<()> {
/// let adapters = Adapters::discover()?.select("auto")?;
/// let mut predictor = Predictor::restore(&adapters[0], task, snapshot, 64)?; // 64 samples at a time
/// let probabilities = predictor.predict(images)?; // (N, classes)
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Predictor {
    engine: Engine,
    executable: Executable,
    input: TensorType,
}

/// Makes `graph` ready on `adapter`, with `weights` by name.
///
/// # Errors
/// When the adapter fails the self-test or lacks the memory, or a parameter has no value of its shape.
pub(super) fn loaded(adapter: &Adapter, graph: &Graph, weights: &Named<Vec<f32>>) -> Result<(Engine, Executable)> {
    usable(vec![adapter.clone()])?;
    let device = Device::open(adapter, None)?;
    let layout = Arc::new(Layout::new(graph, device.target())?);
    let plan = Arc::new(Plan::new(graph, layout.clone(), device.target())?);
    let mut engine = Engine::new(device, &Storage::new(&layout, 0, false, false), &Duty::Inference)?;
    for bucket in 0..layout.buckets().len() {
        engine.write(Buffer::Parameter(bucket), &layout.pack(bucket, weights)?)?;
    }
    let executable = engine.compile(plan)?;
    Ok((engine, executable))
}

/// What `make` makes of the first of `adapters` that can hold the model; each that cannot is logged.
///
/// # Errors
/// What `make` says of the last one, when it can be made on none.
pub fn on_first<T>(adapters: &[Adapter], make: impl Fn(&Adapter) -> Result<T>) -> Result<T> {
    let (last, others) = adapters.split_last().ok_or_else(|| Error::NoAdapter("no adapter was chosen".into()))?;
    for adapter in others {
        match make(adapter) {
            Err(error @ (Error::Limit { .. } | Error::OutOfMemory { .. })) => {
                log::warn!("{error}; trying the next adapter")
            }
            outcome => return outcome,
        }
    }
    make(last)
}

impl Predictor {
    /// Puts `weights`, which are all of the task's model by name, on `adapter`. Samples run `micro_batch` at a time.
    ///
    /// # Errors
    /// When the adapter fails the self-test or lacks the memory, or a parameter has no value of its shape.
    pub fn new(adapter: &Adapter, task: &Task, weights: &Named<Vec<f32>>, micro_batch: usize) -> Result<Self> {
        let (engine, executable) = loaded(adapter, &task.prediction(micro_batch)?, weights)?;
        Ok(Self { engine, executable, input: task.model.input() })
    }

    /// The same with a checkpoint's weights, or their moving average where it has one.
    ///
    /// # Errors
    /// As [`Predictor::new`].
    pub fn restore(adapter: &Adapter, task: &Task, snapshot: &Snapshot, micro_batch: usize) -> Result<Self> {
        Self::new(adapter, task, &saved_weights(snapshot, false)?, micro_batch)
    }

    /// The predictions for `inputs` (N, ..), any N: probabilities (N, classes) for a classifier, else the model's
    /// values (N, ..). The last micro-batch is padded; no sample's result depends on the others.
    ///
    /// # Errors
    /// When the samples are not what the model takes, or the device fails.
    pub fn predict(&mut self, inputs: &HostTensor) -> Result<HostTensor> {
        let (dims, sample) = (inputs.shape().dims(), self.input.shape.dims());
        if dims.is_empty() || dims[1..] != *sample || inputs.dtype() != self.input.dtype {
            let message = format!(
                "the model takes samples of {}, along a first dimension; got {}{}",
                self.input,
                inputs.dtype(),
                inputs.shape()
            );
            return Err(Error::invalid("inputs", message));
        }
        let (samples, rows) = (dims[0], self.executable.micro_batch());
        let output = self.executable.plan().outputs[0].ty.shape.clone();
        let width = output.elements() / rows;
        let mut predictions: Vec<f32> = Vec::with_capacity(samples * width);
        for start in (0..samples).step_by(rows) {
            let end = (start + rows).min(samples);
            let step = Step { valid: (end - start) as u32, ..Step::default() };
            let batch = MicroBatch { step, inputs: &[inputs.row_bytes(start..end)] };
            self.engine.run(&mut self.executable, &batch, None)?;
            for (_, bytes) in self.engine.outputs(&mut self.executable)? {
                let valid = (end - start) * width * size_of::<f32>();
                predictions.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes[..valid]));
            }
        }
        let mut dims = output.dims().to_vec();
        dims[0] = samples;
        HostTensor::new(dims, Elements::F32(predictions))
    }
}
