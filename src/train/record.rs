//! What training tells: one record a step and one an epoch, and who listens.

use std::fmt;

use super::trainer::Trainer;
use crate::balance::{Handover, Idle, Resplit};
use crate::coordinator::Phases;
use crate::error::Result;
use crate::fleet::LostDevice;

/// Weighted sums over samples, and the means they give.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Σ weight·statistic, by statistic; the loss first.
    #[serde(with = "any_float")]
    pub sums: Vec<f64>,
    /// What the sum of the loss is divided by: Σ weight, times the targets of a sample where it has several.
    pub weight: f64,
    /// What the other sums are divided by. It differs where classes have weights, which only the loss heeds.
    pub metric_weight: f64,
}

/// JSON has no NaN and no infinity, which a loss may be: they are written as words, so that a checkpoint that was made
/// after such a step can be read.
mod any_float {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Float {
        Number(f64),
        Word(String),
    }

    pub(super) fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        let float = |&v: &f64| if v.is_finite() { Float::Number(v) } else { Float::Word(v.to_string()) };
        serializer.collect_seq(values.iter().map(float))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let value = |float| match float {
            Float::Number(value) => Ok(value),
            Float::Word(word) => word.parse().map_err(D::Error::custom),
        };
        Vec::<Float>::deserialize(deserializer)?.into_iter().map(value).collect()
    }
}

impl Tally {
    /// Adds a batch's sums, and what they are to be divided by.
    pub fn add(&mut self, sums: &[f64], weight: f64, metric_weight: f64) {
        self.sums.resize(self.sums.len().max(sums.len()), 0.0);
        self.sums.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        self.weight += weight;
        self.metric_weight += metric_weight;
    }

    /// Mean of statistic `index`; `None` where there is no such statistic or nothing was added.
    pub fn mean(&self, index: usize) -> Option<f64> {
        let weight = if index == 0 { self.weight } else { self.metric_weight };
        self.sums.get(index).filter(|_| weight > 0.0).map(|sum| sum / weight)
    }

    /// The mean loss; NaN when nothing was added.
    pub fn loss(&self) -> f64 {
        self.mean(0).unwrap_or(f64::NAN)
    }

    /// The fraction of samples (or of their targets, where they have several) classified correctly, for classifiers.
    pub fn accuracy(&self) -> Option<f64> {
        self.mean(1)
    }
}

/// Why a step's update was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unapplied {
    /// A gradient was not finite.
    NotFinite,
    /// Nothing of the step counts: all its targets are ignored, or weigh nothing.
    NoWeight,
    /// The loss was far above recent ones.
    LossSpike,
    /// Training went back from a loss spike and leaves out the batches that led to it.
    LeftOut,
}

impl fmt::Display for Unapplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFinite => "a gradient was not finite",
            Self::NoWeight => "no target counts: all are ignored, or weigh nothing",
            Self::LossSpike => "the loss was far above recent ones",
            Self::LeftOut => "the batch led to a loss spike and is left out",
        })
    }
}

/// One optimizer step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Steps before this one, over the whole run.
    pub step: u64,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Steps before this one in the epoch.
    pub step_in_epoch: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Samples of the step.
    pub samples: usize,
    /// Mean loss over the step's samples, before the update.
    pub loss: f64,
    /// Fraction of the step's samples classified correctly, for classifiers.
    pub accuracy: Option<f64>,
    /// Learning rate.
    pub learning_rate: f64,
    /// ‖g‖₂ of the averaged gradient before clipping; not finite when the update was skipped: NaN where nothing was
    /// measured.
    pub gradient_norm: f64,
    /// Whether the update was applied.
    pub applied: bool,
    /// Why not.
    pub unapplied: Option<Unapplied>,
    /// Rows, by device.
    pub shards: Vec<usize>,
    /// Seconds that each device took for its rows.
    pub busy: Vec<f64>,
    /// Of these, in kernels, by the device's own clock; `None` where it has none, or it made no sense.
    pub kernels: Vec<Option<f64>>,
    /// Seconds of the whole step.
    pub seconds: f64,
    /// Where they went.
    pub phases: Phases,
    /// A change of the split that starts with the next step.
    pub resplit: Option<Resplit>,
}

/// One epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochRecord {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// Optimizer steps so far.
    pub steps: u64,
    /// Steps of the epoch whose update was not applied.
    pub skipped: u64,
    /// Over the training samples, as they were seen.
    pub train: Tally,
    /// Over the validation samples, where there are any.
    pub validation: Option<Tally>,
    /// Seconds of the epoch's steps.
    pub seconds: f64,
    /// Training samples a second.
    pub samples_per_second: f64,
}

impl EpochRecord {
    /// What "best" is judged by, larger being better: accuracy on the held-out samples, else the negated loss. `None`
    /// without held-out samples: how a network does on what it was trained on says little of which is best.
    pub fn score(&self) -> Option<f64> {
        self.validation.as_ref().map(|tally| tally.accuracy().unwrap_or_else(|| -tally.loss()))
    }
}

/// What an [`Observer`] is told.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A step is done; all devices have the new weights.
    Step(&'a StepRecord),
    /// An epoch is done and validated.
    Epoch(&'a EpochRecord),
    /// A device stopped working; the others go on.
    Lost(&'a LostDevice),
    /// A lost device, of this name, has come back and takes part again.
    Rejoined(&'a str),
    /// A device gets no samples from now on.
    Idle(&'a Idle),
    /// A device, of this name, that got no samples gets some again.
    Employed(&'a str),
    /// Another device applies the updates.
    Led(&'a Handover),
    /// Training has gone back to a snapshot.
    RolledBack(RollBack),
}

/// A way back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RollBack {
    /// The step that training goes on from.
    pub step: u64,
    /// What led to it.
    pub cause: Cause,
}

/// Why training went back to a snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// The device with the optimizer's state was lost.
    LeadLost,
    /// A step's loss was far above recent ones; the batches up to it are left out.
    LossSpike {
        /// The step.
        step: u64,
        /// Its loss.
        loss: f64,
    },
}

impl fmt::Display for RollBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let back = self.step;
        match self.cause {
            Cause::LeadLost => write!(f, "the device with the optimizer's state was lost; going back to step {back}"),
            Cause::LossSpike { step, loss } => write!(
                f,
                "step {step}: the loss of {loss:.4} is far above recent ones; going back to step {back}, without the \
                 batches from there on"
            ),
        }
    }
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// End after this step or epoch.
    Stop,
}

/// Listens to training. Closures `|progress| Flow` are observers.
pub trait Observer {
    /// Told after each step and epoch. The trainer may be read: snapshots, evaluation.
    ///
    /// # Errors
    /// An error ends the training with it.
    fn observe(&mut self, progress: &Progress<'_>, trainer: &mut Trainer) -> Result<Flow>;
}

impl<F: FnMut(&Progress<'_>) -> Flow> Observer for F {
    fn observe(&mut self, progress: &Progress<'_>, _: &mut Trainer) -> Result<Flow> {
        Ok(self(progress))
    }
}
