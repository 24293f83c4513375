//! How to train, as far as it is not the model or the data.

use super::spike::SpikePolicy;
use crate::balance::Split;
use crate::error::{Error, Result};
use crate::fleet::{Endurance, MicroBatchSize};
use crate::optim::{Groups, Optimizer, Schedule, UpdateRule};
use crate::plan::Compression;

/// Settings of a training run. [`TrainOptions::default`] is a sensible start.
///
/// ```
/// # use everygpu::prelude::*;
/// let options = TrainOptions { epochs: 20, batch: 128, split: Split::Even, ..TrainOptions::default() };
/// # assert!(options.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    /// Passes over the training set.
    pub epochs: u64,
    /// Samples of a global batch, over all devices.
    pub batch: usize,
    /// Batches whose gradients make one update.
    pub accumulate: usize,
    /// Rows that a device runs at once.
    pub micro_batch: MicroBatchSize,
    /// Seeds initial weights, order and dropout.
    pub seed: u64,
    /// Largest global norm of the averaged gradient; larger ones are scaled down.
    pub clip_norm: Option<f32>,
    /// Takes the samples of each epoch in an order of its own, which the seed gives; else in the data set's order.
    pub shuffle: bool,
    /// Leaves out an epoch's last batch when it is short.
    pub drop_last: bool,
    /// How a batch is divided over the devices.
    pub split: Split,
    /// Keeps the first split, so that a run can be repeated bit by bit.
    pub deterministic: bool,
    /// How gradients are handed out where several devices train: as they are, or in half the bits with error feedback.
    pub gradient_compression: Compression,
    /// Updates in a row with a gradient that is not finite, after which training stops.
    pub nonfinite_limit: u64,
    /// What counts as a loss spike, and what is done about it.
    pub loss_spike: SpikePolicy,
    /// Steps between two comparisons of all devices' weights by fingerprint; 0 for never.
    pub verify_weights_every: u64,
    /// Steps between two snapshots in host memory, from which a lost lead is recovered; 0 for only the first.
    pub snapshot_every: u64,
    /// Steps between two cross-checks, in which the same few samples' gradients are computed on all devices and
    /// compared; 0 for never.
    pub cross_check_every: u64,
    /// When a device is given up, and when it is tried again.
    pub endurance: Endurance,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Parameters that are treated otherwise than the rest.
    pub groups: Groups,
    /// Decay of a moving average of the weights, which is what validation, evaluation and prediction then go by.
    pub ema_decay: Option<f64>,
    /// Learning rate.
    pub schedule: Schedule,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            epochs: 10,
            batch: 64,
            accumulate: 1,
            micro_batch: MicroBatchSize::Auto,
            seed: 0,
            clip_norm: None,
            shuffle: true,
            drop_last: false,
            split: Split::Speed,
            deterministic: false,
            gradient_compression: Compression::None,
            nonfinite_limit: 10,
            loss_spike: SpikePolicy::default(),
            verify_weights_every: 100,
            snapshot_every: 100,
            cross_check_every: 0,
            endurance: Endurance::default(),
            optimizer: Optimizer::default(),
            groups: Groups::default(),
            ema_decay: None,
            schedule: Schedule::constant(1e-3),
        }
    }
}

impl TrainOptions {
    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        let positive = |name: &str, value: u64| {
            if value > 0 { Ok(()) } else { Err(Error::invalid(name, "expected 1 or more, got 0")) }
        };
        positive("train.epochs", self.epochs)?;
        positive("train.batch", self.batch as u64)?;
        positive("train.accumulate", self.accumulate as u64)?;
        positive("train.nonfinite_limit", self.nonfinite_limit)?;
        if let MicroBatchSize::Rows(rows) = self.micro_batch {
            positive("train.micro_batch", rows as u64)?;
        }
        // Rows are counted in 32 bits on the devices.
        if self.window() > u32::MAX as usize {
            let message = format!("expected at most {} samples, got {} × {}", u32::MAX, self.batch, self.accumulate);
            return Err(Error::invalid("train.batch × train.accumulate", message));
        }
        self.loss_spike.validate(self.snapshot_every)?;
        self.split.validate()?;
        self.update_rule().validate()?;
        self.schedule.validate()
    }

    /// What an update does, the learning rate apart.
    pub fn update_rule(&self) -> UpdateRule {
        let &Self { optimizer, clip_norm, ema_decay, .. } = self;
        UpdateRule { optimizer, groups: self.groups.clone(), clip_norm, ema_decay }
    }

    /// Samples that one update sees.
    pub fn window(&self) -> usize {
        self.batch.saturating_mul(self.accumulate)
    }
}
