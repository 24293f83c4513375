//! Batch sizes by measurement: a sweep of micro-batch sizes on each adapter, the gradient noise scale, and what follows
//! from both. Everything runs on devices of its own, from copies of the weights: a training is not touched.

mod advice;
mod bench;
mod measured;
mod noise;
mod plot;
mod report;
mod sweep;

use std::sync::Arc;

pub use advice::{Advice, LearningRate};
pub use measured::{End, Measurement, Outcome, Size, Sweep};
pub use noise::{NoiseSample, NoiseScale};
pub use plot::plot;
pub use report::{AdapterSweep, TuneReport};
#[cfg(feature = "test-support")]
pub use sweep::{Bench, Bounds, sweep};

use self::advice::Facts;
use self::sweep::attempt;
#[cfg(not(feature = "test-support"))]
use self::sweep::{Bounds, sweep};
use crate::checkpoint::Snapshot;
use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::fleet::caught;
use crate::gpu::Adapter;
#[cfg(feature = "test-support")]
pub use crate::scratch::Scratch;
#[cfg(not(feature = "test-support"))]
use crate::scratch::Scratch;
use crate::scratch::{Start, Subject};
use crate::self_test::usable;
use crate::train::{Task, TrainOptions};

/// How many times the time for a size a single step may take before larger sizes are left out.
const PATIENCE: f64 = 4.0;

/// What is tuned, and on what.
#[derive(Clone)]
pub struct Tuning {
    /// The model and its loss.
    pub task: Task,
    /// The run's settings.
    pub options: TrainOptions,
    /// What it trains on.
    pub data: Arc<dyn Dataset>,
    /// The adapters that it runs on.
    pub adapters: Vec<Adapter>,
    /// Logical devices on each adapter. Each adapter is measured with one device that has it alone.
    pub replicas: usize,
    /// Most bytes that a device may allocate.
    pub memory_limit: Option<u64>,
    /// A checkpoint of the model, whose weights are taken instead of initial ones.
    pub snapshot: Option<Snapshot>,
    /// Seconds that the timed steps of a size may take; where a single step takes four times that, larger sizes are
    /// left out.
    pub seconds: f64,
}

/// What is being done, as it happens.
#[derive(Debug, Clone, Copy)]
pub enum Tuned<'a> {
    /// An adapter's sweep begins.
    Adapter(&'a Adapter),
    /// A size is done.
    Size(&'a Size),
    /// The sweep is over.
    Sweep(&'a Sweep),
    /// An adapter whose sweep ended before it has been tried at the largest knee, too.
    Again(&'a Adapter, &'a Size),
}

impl Tuning {
    fn subject(&self) -> Subject {
        Subject {
            task: self.task.clone(),
            options: self.options.clone(),
            data: self.data.clone(),
            snapshot: self.snapshot.clone(),
            exchanges: self.adapters.len() * self.replicas > 1,
            memory_limit: self.memory_limit,
            seconds: self.seconds,
        }
    }

    /// Where measurements start on all of the run's devices.
    fn start(&self) -> Result<Start> {
        self.subject().start(&self.adapters.iter().map(Adapter::target).collect::<Vec<_>>())
    }

    /// A device for measurements on `adapter`, as one of all of the run's.
    ///
    /// # Errors
    /// When the model does not work on the data, or the device lacks the memory for its parameters.
    pub fn scratch(&self, adapter: &Adapter) -> Result<Scratch> {
        Scratch::open(adapter, self.subject(), self.start()?)
    }

    fn bounds(&self, group: usize) -> Bounds {
        let (rows, memory) = (self.data.len(), self.memory_limit);
        Bounds { rows, group, memory, seconds: PATIENCE * self.seconds }
    }
}

/// Sweeps the micro-batch sizes on each adapter, one after the other, measures the gradient noise scale on the fastest,
/// and advises. An adapter that fails the self-test is left out.
///
/// # Errors
/// When a setting is out of range, the model cannot work on the data, or no adapter can run a single sample.
pub fn tune(tuning: &Tuning, observe: &mut dyn FnMut(Tuned<'_>)) -> Result<TuneReport> {
    tuning.options.validate()?;
    if tuning.replicas == 0 {
        return Err(Error::invalid("devices.replicas", "expected 1 or more, got 0"));
    }
    if !(tuning.seconds.is_finite() && tuning.seconds > 0.0) {
        return Err(Error::invalid("seconds", format!("expected a finite number above 0, got {}", tuning.seconds)));
    }
    let (adapters, _) = usable(tuning.adapters.clone())?;
    let tuning = &Tuning { adapters, ..tuning.clone() };
    // What is wrong with the model or the weights is wrong on every adapter.
    let group = tuning.start()?.group;
    let mut sweeps = Vec::new();
    for adapter in &tuning.adapters {
        observe(Tuned::Adapter(adapter));
        let found = match caught(|| tuning.scratch(adapter)) {
            Ok(mut scratch) => {
                let found = sweep(&mut scratch, &tuning.bounds(group), &mut |size| observe(Tuned::Size(size)));
                discard(scratch);
                found
            }
            Err(error) => unable(&error, observe),
        };
        observe(Tuned::Sweep(&found));
        sweeps.push(found);
    }
    compare(tuning, &mut sweeps, observe);
    let noise = noise_scale(tuning, &sweeps)?;
    let facts = Facts {
        sweeps: &sweeps.iter().collect::<Vec<_>>(),
        replicas: tuning.replicas,
        samples: tuning.data.len(),
        noise: noise.as_ref(),
        options: &tuning.options,
    };
    let advice = Advice::new(&facts).ok_or_else(|| nothing_ran(tuning, &sweeps))?;
    let adapter = |(adapter, sweep): (&Adapter, Sweep)| AdapterSweep {
        index: adapter.index,
        label: adapter.label(),
        kind: adapter.kind().name(),
        driver: adapter.driver(),
        sweep,
    };
    Ok(TuneReport {
        samples: tuning.data.len(),
        memory_limit: tuning.memory_limit,
        replicas: tuning.replicas,
        adapters: tuning.adapters.iter().zip(sweeps).map(adapter).collect(),
        noise,
        advice,
    })
}

/// Frees a device that may have failed: a driver's clean-up may panic then.
fn discard(scratch: Scratch) {
    let dropped = caught(|| {
        drop(scratch);
        Ok(())
    });
    if let Err(error) = dropped {
        log::warn!("{error}");
    }
}

/// The sweep of a device that cannot hold the model, or cannot be opened.
fn unable(error: &Error, observe: &mut dyn FnMut(Tuned<'_>)) -> Sweep {
    let end = match error {
        Error::OutOfMemory { .. } => End::Memory,
        Error::Limit { .. } => End::Limit,
        _ => End::Failed,
    };
    let size = Size { rows: 1, predicted_bytes: None, outcome: Outcome::Failed { reason: error.to_string() } };
    observe(Tuned::Size(&size));
    Sweep { sizes: vec![size], knee: None, end }
}

/// A run has one `micro_batch` for all devices: the largest knee is tried where the sweep ended before it.
fn compare(tuning: &Tuning, sweeps: &mut [Sweep], observe: &mut dyn FnMut(Tuned<'_>)) {
    let Some(most) = sweeps.iter().filter_map(|s| s.knee).max() else { return };
    for (adapter, sweep) in tuning.adapters.iter().zip(sweeps) {
        let may = matches!(sweep.end, End::Knee | End::Data) && sweep.at(most).is_none();
        if !may {
            continue;
        }
        let outcome = caught(|| {
            let mut scratch = tuning.scratch(adapter)?;
            let (size, _) = attempt(&mut scratch, most, tuning.memory_limit);
            discard(scratch);
            Ok(size)
        });
        match outcome {
            Ok(size) => {
                observe(Tuned::Again(adapter, &size));
                let at = sweep.sizes.partition_point(|s| s.rows < most);
                sweep.sizes.insert(at, size);
            }
            Err(error) => log::warn!("{} could not be opened once more: {error}", adapter.label()),
        }
    }
}

/// The gradient noise scale, on the fastest adapter. That it cannot be measured does not make the sweeps worthless.
fn noise_scale(tuning: &Tuning, sweeps: &[Sweep]) -> Result<Option<NoiseScale>> {
    let speed = |sweep: &Sweep| Some((sweep.knee?, sweep.at(sweep.knee?)?.samples_per_second));
    let candidates = tuning.adapters.iter().zip(sweeps).filter_map(|(a, s)| Some((a, speed(s)?)));
    let Some((adapter, (rows, _))) = candidates.max_by(|a, b| a.1.1.total_cmp(&b.1.1)) else { return Ok(None) };
    let measured = caught(|| {
        let mut scratch = tuning.scratch(adapter)?;
        let initial = tuning.snapshot.is_none();
        let found = noise::measure(&mut scratch, tuning.data.len(), rows, 4.0 * tuning.seconds, initial);
        discard(scratch);
        found
    });
    Ok(measured.unwrap_or_else(|error| {
        log::warn!("the gradient noise scale could not be measured: {error}");
        None
    }))
}

fn nothing_ran(tuning: &Tuning, sweeps: &[Sweep]) -> Error {
    let why = |(adapter, sweep): (&Adapter, &Sweep)| {
        let reason = sweep.sizes.last().map(|size| match &size.outcome {
            Outcome::Skipped { reason } | Outcome::Failed { reason } => reason.as_str(),
            Outcome::Ran(_) => "",
        });
        format!("{}: {}", adapter.label(), reason.unwrap_or_default())
    };
    let all: Vec<_> = tuning.adapters.iter().zip(sweeps).map(why).collect();
    Error::Training(format!("no adapter can run a single sample: {}", all.join("; ")))
}
