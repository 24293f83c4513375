//! How to train, as far as it is not the model or the data.

use super::patience::Endurance;
use super::spike::SpikePolicy;
use super::split::Split;
use crate::error::{Error, Result};
use crate::optim::{Groups, Optimizer, Schedule, UpdateRule};
use crate::plan::Compression;

/// Rows that a device runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MicroBatchSize {
    /// As many of the shard's rows as fit the device, within reason.
    #[default]
    Auto,
    /// At most this many.
    Rows(usize),
}

/// Largest micro-batch that `auto` takes without being told to: beyond it, throughput no longer grows on any adapter we
/// have measured, while memory does.
const AUTO_ROWS: usize = 512;

impl MicroBatchSize {
    /// Most rows that a device is to run at once, memory permitting.
    pub const fn most(self) -> usize {
        match self {
            Self::Auto => AUTO_ROWS,
            Self::Rows(most) => most,
        }
    }

    /// Rows of each micro-batch for a shard of `rows`, where each `group` consecutive rows stay together: equal ones, so that
    /// the last is not mostly padding.
    pub fn rows(self, rows: usize, group: usize) -> usize {
        piece(rows, group, self.pieces(rows, group))
    }

    /// The fewest micro-batches that such a shard is cut into.
    pub(super) fn pieces(self, rows: usize, group: usize) -> usize {
        if rows <= self.most() {
            return 1;
        }
        rows.div_ceil(group).div_ceil((self.most() / group).max(1))
    }

    /// Checks that a micro-batch may hold a whole group, or a whole update's samples where these are fewer.
    ///
    /// # Errors
    /// When it may not.
    pub(super) fn check(self, group: usize, window: usize) -> Result<()> {
        let least = group.min(window);
        match self {
            Self::Rows(rows) if rows < least => {
                let message = format!(
                    "expected {least} or more, since batch norm takes statistics of {group} samples together, got {rows}; \
                     raise it, or lower the layers' group"
                );
                Err(Error::invalid("train.micro_batch", message))
            }
            _ => Ok(()),
        }
    }
}

/// Rows of a micro-batch when a shard of `rows` is cut into about `pieces` equal ones: whole groups, or the whole shard.
pub(super) fn piece(rows: usize, group: usize, pieces: usize) -> usize {
    let rows = rows.max(1);
    rows.div_ceil(group).div_ceil(pieces).saturating_mul(group).min(rows)
}

/// Settings of a training run. [`TrainOptions::default`] is a sensible start.
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
    /// Steps between two cross-checks, in which one micro-batch's gradients are computed on two devices and compared; 0 for
    /// never.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_are_equal_and_hold_whole_groups() {
        let size = |most, rows, group| MicroBatchSize::Rows(most).rows(rows, group);
        assert_eq!([size(32, 43, 1), size(32, 0, 1), size(100, 43, 1)], [22, 1, 43]);
        assert_eq!([size(100, 43, 32), size(40, 43, 32), size(64, 200, 32), size(8, 6, 32)], [43, 32, 64, 6]);
        for (rows, group, pieces) in [(100, 8, 3), (7, 32, 1), (96, 32, 2), (1000, 1, 7)] {
            let size = piece(rows, group, pieces);
            assert!(size == rows || size.is_multiple_of(group), "{size}");
            assert!(size * pieces >= rows);
        }
    }

    #[test]
    fn a_micro_batch_that_cannot_hold_a_group_is_refused() {
        let message = |rows| MicroBatchSize::Rows(rows).check(32, 64).map_err(|e| e.to_string());
        assert_eq!(message(32), Ok(()));
        let error = message(8).unwrap_err();
        assert!(error.starts_with("train.micro_batch: expected 32 or more") && error.contains("got 8"), "{error}");
        assert!(MicroBatchSize::Rows(8).check(32, 7).is_ok());
        assert!(MicroBatchSize::Auto.check(1000, 2000).is_ok());
    }
}
