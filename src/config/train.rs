//! `[train]`.

use super::reader::{Read, Section, any_of, choice, flag, list, not_negative, positive, single, whole};
use super::tree::{Value, quoted};
use crate::error::Result;
use crate::train::{Compression, MicroBatchSize, OnLossSpike, SpikePolicy, Split};

/// `[train]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainConfig {
    /// Passes over the training data.
    pub epochs: u64,
    /// Samples of a global batch, over all devices.
    pub batch: usize,
    /// Batches whose gradients make one update.
    pub accumulate: usize,
    /// Rows that a device runs at once.
    pub micro_batch: MicroBatchSize,
    /// Seeds initial weights, order, split and dropout.
    pub seed: u64,
    /// Largest global norm of the averaged gradient.
    pub clip_norm: Option<f32>,
    /// Takes the samples of each epoch in an order of its own; else as they are in the data.
    pub shuffle: bool,
    /// Leaves out an epoch's last batch when it is short.
    pub drop_last: bool,
    /// How a batch is divided over the devices.
    pub split: Split,
    /// Keeps the first split, so that a run can be repeated bit by bit.
    pub deterministic: bool,
    /// Steps between two checkpoints; 0 for one at the end of each epoch only.
    pub checkpoint_every: u64,
    /// Checkpoints that are kept.
    pub keep_last: usize,
    /// Best checkpoints, by validation, that are kept beside them.
    pub keep_best: usize,
    /// How gradients are handed out where several devices train.
    pub gradient_compression: Compression,
    /// Updates in a row with a gradient that is not finite, after which training stops.
    pub nonfinite_limit: u64,
    /// What counts as a loss spike (`spike_threshold`, `spike_warmup`), and what is done about it (`on_loss_spike`).
    pub loss_spike: SpikePolicy,
    /// Steps between two comparisons of all devices' weights by fingerprint; 0 for never.
    pub verify_weights_every: u64,
    /// Steps between two snapshots in host memory, from which a lost lead is recovered; 0 for only the first.
    pub snapshot_every: u64,
    /// Steps between two cross-checks of devices' gradients; 0 for never.
    pub cross_check_every: u64,
}

const COMPRESSIONS: [(&str, Compression); 3] =
    [("none", Compression::None), ("f16", Compression::F16), ("bf16", Compression::Bf16)];

const ON_LOSS_SPIKE: [(&str, OnLossSpike); 3] =
    [("ignore", OnLossSpike::Ignore), ("skip", OnLossSpike::Skip), ("roll-back", OnLossSpike::RollBack)];

/// The name of `value` among `options`, as [`choice`] reads them.
fn name_of<T: PartialEq>(options: &[(&'static str, T)], value: T) -> &'static str {
    options.iter().find(|(_, option)| *option == value).map(|(name, _)| *name).expect("every option has a name")
}

fn split(value: &Value) -> Read<Split> {
    let weights = || list(not_negative)(value).ok().filter(|w| w.iter().sum::<f64>() > 0.0);
    match value {
        Value::String(word) if word == "speed" => Ok(Split::Speed),
        Value::String(word) if word == "even" => Ok(Split::Even),
        _ => weights().map(Split::Weights).ok_or_else(|| {
            let names = ["\"speed\"", "\"even\"", "a list of weights that are not all 0, one a device"];
            any_of(&names.map(str::to_owned))
        }),
    }
}

fn micro_batch(value: &Value) -> Read<MicroBatchSize> {
    unless("auto", whole(1))(value).map(|rows| rows.map_or(MicroBatchSize::Auto, MicroBatchSize::Rows))
}

/// What `inner` takes, or the word `word` for none.
pub(super) fn unless<T>(word: &str, inner: impl Fn(&Value) -> Read<T>) -> impl Fn(&Value) -> Read<Option<T>> {
    move |value| match value {
        Value::String(v) if v == word => Ok(None),
        _ => inner(value).map(Some).map_err(|expected| format!("{expected}, or {}", quoted(word))),
    }
}

pub(super) fn write_unless<T: std::fmt::Debug>(word: &str, value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| quoted(word), |v| format!("{v:?}"))
}

impl TrainConfig {
    pub(super) fn read(mut section: Section) -> Result<Self> {
        let config = Self {
            epochs: section.get("epochs", 10, whole(1))?,
            batch: section.get("batch", 64, whole(1))?,
            accumulate: section.get("accumulate", 1, whole(1))?,
            micro_batch: section.get("micro_batch", MicroBatchSize::Auto, micro_batch)?,
            seed: section.get("seed", 0, whole(0))?,
            clip_norm: section.get("clip_norm", None, unless("none", single(positive)))?,
            shuffle: section.get("shuffle", true, flag)?,
            drop_last: section.get("drop_last", false, flag)?,
            split: section.get("split", Split::Speed, split)?,
            deterministic: section.get("deterministic", false, flag)?,
            checkpoint_every: section.get("checkpoint_every", 0, whole(0))?,
            keep_last: section.get("keep_last", 2, whole(1))?,
            keep_best: section.get("keep_best", 1, whole(0))?,
            gradient_compression: section.get("gradient_compression", Compression::None, choice(&COMPRESSIONS))?,
            nonfinite_limit: section.get("nonfinite_limit", 10, whole(1))?,
            loss_spike: SpikePolicy {
                action: section.get("on_loss_spike", OnLossSpike::Ignore, choice(&ON_LOSS_SPIKE))?,
                threshold: section.get("spike_threshold", 6.0, positive)?,
                warmup: section.get("spike_warmup", 50, whole(0))?,
            },
            verify_weights_every: section.get("verify_weights_every", 100, whole(0))?,
            snapshot_every: section.get("snapshot_every", 100, whole(0))?,
            cross_check_every: section.get("cross_check_every", 0, whole(0))?,
        };
        section.finish()?;
        Ok(config)
    }

    pub(super) fn write(&self) -> Vec<(&'static str, String)> {
        let split = match &self.split {
            Split::Speed => quoted("speed"),
            Split::Even => quoted("even"),
            Split::Weights(weights) => format!("{weights:?}"),
        };
        let micro_batch = match self.micro_batch {
            MicroBatchSize::Auto => quoted("auto"),
            MicroBatchSize::Rows(rows) => rows.to_string(),
        };
        vec![
            ("epochs", self.epochs.to_string()),
            ("batch", self.batch.to_string()),
            ("accumulate", self.accumulate.to_string()),
            ("micro_batch", micro_batch),
            ("seed", self.seed.to_string()),
            ("clip_norm", write_unless("none", &self.clip_norm)),
            ("shuffle", self.shuffle.to_string()),
            ("drop_last", self.drop_last.to_string()),
            ("split", split),
            ("deterministic", self.deterministic.to_string()),
            ("checkpoint_every", self.checkpoint_every.to_string()),
            ("keep_last", self.keep_last.to_string()),
            ("keep_best", self.keep_best.to_string()),
            ("gradient_compression", quoted(name_of(&COMPRESSIONS, self.gradient_compression))),
            ("nonfinite_limit", self.nonfinite_limit.to_string()),
            ("on_loss_spike", quoted(name_of(&ON_LOSS_SPIKE, self.loss_spike.action))),
            ("spike_threshold", format!("{:?}", self.loss_spike.threshold)),
            ("spike_warmup", self.loss_spike.warmup.to_string()),
            ("verify_weights_every", self.verify_weights_every.to_string()),
            ("snapshot_every", self.snapshot_every.to_string()),
            ("cross_check_every", self.cross_check_every.to_string()),
        ]
    }
}
