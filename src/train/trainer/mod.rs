//! The training loop: epochs and steps over a data set, with the position in them, so that a run can stop anywhere and
//! go on from a snapshot as if it had not.

mod builder;
mod fit;
mod step;
mod weights;

use std::sync::Arc;

pub use builder::TrainerBuilder;

use super::options::TrainOptions;
use super::position::Position;
use super::record::{EpochRecord, Tally};
use super::task::Task;
use crate::checkpoint::Snapshot;
use crate::coordinator::Coordinator;
use crate::data::{Dataset, Loader, Sampler};
use crate::error::{Error, Result};
use crate::fleet::StepKey;
use crate::self_test::Rejected;

/// What is done as soon as a device was lost, before the others prepare for its samples: that takes a while.
pub(super) type WhenLost<'a> = dyn FnMut(&mut Trainer) -> Result<()> + 'a;

/// Batches that are gathered ahead.
const PREFETCH: usize = 2;

/// What a finished training says.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// The last epoch that was finished, if any was.
    pub last: Option<EpochRecord>,
    /// Optimizer steps taken, earlier runs' included.
    pub steps: u64,
    /// Whether an observer stopped it.
    pub stopped: bool,
}

/// Trains a model on several devices.
///
/// ```
/// use std::sync::Arc;
///
/// use everygpu::prelude::*;
///
/// # fn main() -> Result<()> {
/// let (train, held_out) = split(&digits()?, 0.2, 0, true)?;
/// let (train, held_out): (Arc<dyn Dataset>, Arc<dyn Dataset>) = (Arc::new(train), Arc::new(held_out));
///
/// let model = Sequential::new([1, 8, 8]).flatten().linear(10);
/// let options = TrainOptions { epochs: 1, batch: 128, ..TrainOptions::default() };
/// let adapters = Adapters::discover()?.select("auto")?;
/// let mut trainer = Trainer::builder(Task::classification(model), options).adapters(&adapters).start()?;
/// trainer.fit(&train, Some(&held_out), &mut |_: &Progress<'_>| Flow::Continue)?;
/// println!("loss on the held-out samples: {:.3}", trainer.evaluate(&held_out)?.loss());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Trainer {
    pub(super) task: Task,
    pub(super) options: TrainOptions,
    pub(super) coordinator: Coordinator,
    pub(super) position: Position,
    /// What a lost lead is recovered from.
    pub(super) fallback: Option<Snapshot>,
    rejected: Vec<Rejected>,
}

impl Trainer {
    /// The devices and how the work is divided.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Where the run stands.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The adapters that were left out because they compute wrongly or cannot be tested, and what the self-test found.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The snapshot in host memory that training would go back to. Where no device is left it is all that is left, too.
    pub fn last_snapshot(&self) -> Option<&Snapshot> {
        self.fallback.as_ref()
    }

    /// The settings.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// Checks, before anything is done, that this trainer can train on `train`.
    ///
    /// # Errors
    /// When its samples are not what the model takes, or `drop_last` would leave none.
    pub fn can_train_on(&self, train: &dyn Dataset) -> Result<()> {
        self.task.check(train)?;
        self.sampler(train).map(drop)
    }

    fn sampler(&self, train: &dyn Dataset) -> Result<Sampler> {
        let TrainOptions { seed, shuffle, drop_last, .. } = self.options;
        Sampler::new(train.len(), self.options.window(), seed, shuffle, drop_last)
    }

    /// Loss and metrics over a data set, with the weights as they are.
    ///
    /// # Errors
    /// When the data is not what the model takes, nothing of it counts, or no device is left.
    pub fn evaluate(&mut self, data: &Arc<dyn Dataset>) -> Result<Tally> {
        self.task.check(data.as_ref())?;
        self.evaluate_checked(data, &mut |_| Ok(()))
    }

    /// The same for data that has been checked; `lost` is called when a device was lost over it.
    pub(super) fn evaluate_checked(&mut self, data: &Arc<dyn Dataset>, lost: &mut WhenLost<'_>) -> Result<Tally> {
        let sampler = Sampler::new(data.len(), self.options.window(), 0, false, false)?;
        let steps = sampler.steps_per_epoch();
        let mut tally = Tally::default();
        for batch in Loader::start(data.clone(), sampler.batches_from(0, 0).take(steps), PREFETCH)? {
            let batch = Arc::new(batch?);
            let weight = self.task.weight_sum(&batch);
            let sums = loop {
                match self.coordinator.evaluate(&batch, StepKey::default(), weight)? {
                    Some(sums) => break sums,
                    None => lost(self)?,
                }
            };
            tally.add(&sums, weight, self.task.metric_weight_sum(&batch));
        }
        if tally.weight == 0.0 {
            let message = format!(
                "no target of the {} samples to evaluate counts: all are ignored, or weigh nothing; there is no mean loss",
                data.len()
            );
            return Err(Error::Training(message));
        }
        Ok(tally)
    }
}
