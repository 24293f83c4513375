//! Where the time of a step goes: each dispatch of a run's micro-batch and of its update, timed by itself, beside what
//! the adapter can do at best. Everything runs on a device of its own: a training is not touched.

mod ceilings;
mod report;

use std::sync::Arc;

pub(crate) use ceilings::kernels as ceiling_kernels;
pub use report::{Ceilings, Group, Part, Profile, Rate, Timed};

use crate::data::Dataset;
use crate::error::{Error, Result};
use crate::gpu::{Adapter, TimedBy};
use crate::scratch::{Scratch, Subject, median, repeat};
use crate::self_test::usable;
use crate::train::{Task, TrainOptions};

/// What is profiled, and on what.
#[derive(Clone)]
pub struct Profiling {
    /// The model and its loss.
    pub task: Task,
    /// The run's settings.
    pub options: TrainOptions,
    /// What it trains on.
    pub data: Arc<dyn Dataset>,
    /// The adapter.
    pub adapter: Adapter,
    /// Most bytes that the device may allocate.
    pub memory_limit: Option<u64>,
    /// Rows of the micro-batch; `None` for what one device takes of the run's batch.
    pub micro_batch: Option<usize>,
    /// Seconds that repetitions may take.
    pub seconds: f64,
}

/// Profiles one step: the gradients of a micro-batch, and an update.
///
/// # Errors
/// When a setting is out of range, the model cannot work on the data, the adapter fails the self-test, or the device
/// lacks the memory or fails.
pub fn profile(profiling: &Profiling) -> Result<Profile> {
    let Profiling { task, options, data, adapter, memory_limit, micro_batch, seconds } = profiling;
    options.validate()?;
    if !(seconds.is_finite() && *seconds > 0.0) {
        return Err(Error::invalid("seconds", format!("expected a finite number above 0, got {seconds}")));
    }
    let subject = Subject {
        task: task.clone(),
        options: options.clone(),
        data: data.clone(),
        snapshot: None,
        exchanges: false,
        memory_limit: *memory_limit,
        seconds: *seconds,
    };
    let start = subject.start(&[adapter.target()])?;
    usable(vec![adapter.clone()])?;
    let rows = micro_batch.unwrap_or_else(|| options.micro_batch.rows(options.batch, start.group)).min(data.len());
    let ceilings = ceilings::measure(adapter, *memory_limit, *seconds)?;

    let mut scratch = Scratch::open(adapter, subject, start)?;
    let mut executable = scratch.compile(rows)?;
    let batch = scratch.gather(0..rows)?;
    // Drivers compile for real at the first use.
    scratch.step(&mut executable, &batch)?;
    let mut rounds = |by| {
        let mut round =
            || Ok((scratch.step(&mut executable, &batch)?, scratch.dispatches(&mut executable, &batch, by)?));
        // As before, of each dispatch by itself.
        round()?;
        repeat(*seconds, round)
    };
    let mut timed_by = TimedBy::Device;
    let mut found = rounds(timed_by)?;
    if found.iter().all(|(_, dispatches)| dispatches.is_none()) {
        timed_by = TimedBy::Host;
        found = rounds(timed_by)?;
    }
    let steps = found.iter().map(|(step, _)| *step).collect();
    let each: Vec<[Vec<f64>; 2]> = found.into_iter().filter_map(|(_, dispatches)| dispatches).collect();
    let mut dispatches = Vec::new();
    let parts = [(Part::Gradients, &executable.plan().dispatches[..]), (Part::Update, scratch.update())];
    for (index, (part, of_part)) in parts.into_iter().enumerate() {
        for (at, dispatch) in of_part.iter().enumerate() {
            let seconds = median(each.iter().map(|round| round[index][at]).collect());
            dispatches.push(Timed::new(part, dispatch, seconds));
        }
    }
    let sum = |part| dispatches.iter().filter(|timed| timed.part == part).map(|timed| timed.seconds).sum::<f64>();
    let (step, gradients, update) = (median(steps), sum(Part::Gradients), sum(Part::Update));
    Ok(Profile {
        adapter: adapter.label(),
        driver: adapter.driver(),
        micro_batch: rows,
        rounds: each.len(),
        timed_by: if timed_by == TimedBy::Device { "device" } else { "host" },
        ceilings,
        step,
        gradients,
        update,
        gaps: step - gradients - update,
        by_kernel: Group::by(&dispatches, |timed| &timed.kernel),
        by_layer: Group::by(&dispatches, |timed| &timed.layer),
        dispatches,
    })
}
