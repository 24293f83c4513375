//! What a device is asked to do.

use std::ops::Range;
use std::sync::Arc;

use crate::data::Batch;
use crate::error::Result;
use crate::optim::{NormOutcome, Update};
use crate::plan::Buffer;

/// What random numbers of a step are keyed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepKey {
    /// The run's seed.
    pub seed: u64,
    /// Optimizer step, from 0 over the whole run.
    pub step: u64,
}

/// A device's part of a global batch.
#[derive(Debug, Clone)]
pub struct Shard {
    /// The whole batch.
    pub batch: Arc<Batch>,
    /// This device's rows of it.
    pub rows: Range<usize>,
    /// The step's key.
    pub key: StepKey,
    /// What the step's sums are divided by: packed gradients are scaled with it.
    pub weight: f64,
    /// Whether gradients are handed out as they are, although the device packs them otherwise.
    pub exact: bool,
}

/// What a device reports of a shard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShardReport {
    /// Σ weight·statistic over the shard, by statistic.
    pub statistics: Vec<f64>,
    /// From the start of the work to the last bucket on the host (or to the device's being done).
    pub seconds: f64,
    /// Of these, in kernels, by the device's own clock; `None` where it has none, or it made no sense.
    pub kernels: Option<f64>,
}

/// Takes a bucket's bytes as soon as they are final: (bucket, values).
pub(super) type Sink<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// A device at work. All calls block; each runs on the device's own thread.
pub trait Worker {
    /// A name for messages.
    fn label(&self) -> String;

    /// Prepares for shards of `rows` rows: chooses a micro-batch size, allocates and compiles. The size chosen.
    ///
    /// # Errors
    /// When not even a micro-batch of one row fits, or the device fails.
    fn prepare(&mut self, rows: usize) -> Result<usize>;

    /// Sums the gradients of a shard, unnormalised. With a `sink`, buckets are handed out as they are finished;
    /// without, they stay on the device.
    ///
    /// # Errors
    /// When the device fails.
    fn gradients(&mut self, shard: &Shard, sink: Option<Sink<'_>>) -> Result<ShardReport>;

    /// Runs a shard forward only.
    ///
    /// # Errors
    /// When the device fails.
    fn evaluate(&mut self, shard: &Shard) -> Result<ShardReport>;

    /// Takes over the updates; optimizer state starts at zero.
    ///
    /// # Errors
    /// When the device fails. [`Error::OutOfMemory`](crate::error::Error::OutOfMemory) where it only lacks the memory
    /// for this and can go on as before.
    fn lead(&mut self) -> Result<()>;

    /// Leaves the updates to another device; the optimizer's state is given up.
    fn follow(&mut self);

    /// Updates the parameters from the gradients that are on the device. With a `sink`, updated buckets are handed out.
    ///
    /// # Errors
    /// When the device is not the lead, or fails.
    fn update(&mut self, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome>;

    /// Overwrites a bucket.
    ///
    /// # Errors
    /// When the device fails.
    fn write(&mut self, buffer: Buffer, values: &[f32]) -> Result<()>;

    /// Forgets what packing has held back of gradients so far: they were not worth keeping.
    ///
    /// # Errors
    /// When the device fails.
    fn clear_residuals(&mut self) -> Result<()> {
        Ok(())
    }

    /// A fingerprint of each parameter bucket: equal on devices whose weights are equal to the bit.
    ///
    /// # Errors
    /// When the device fails.
    fn fingerprints(&mut self) -> Result<Vec<u64>>;

    /// Reads a bucket.
    ///
    /// # Errors
    /// When the device fails.
    fn read(&mut self, buffer: Buffer) -> Result<Vec<f32>>;
}
