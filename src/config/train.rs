//! `[train]`.

use super::fields::Fields;
use super::reader::Wrong;
use super::tree::{Node, Value, quoted};
use super::values::{ABOVE_ZERO, Form, choice, flag, list, number, single, unless, whole};
use crate::run::CheckpointPolicy;
use crate::train::{Compression, MicroBatchSize, OnLossSpike, Split, TrainOptions};

const COMPRESSIONS: [(&str, Compression); 3] =
    [("none", Compression::None), ("f16", Compression::F16), ("bf16", Compression::Bf16)];

const ON_LOSS_SPIKE: [(&str, OnLossSpike); 3] =
    [("ignore", OnLossSpike::Ignore), ("skip", OnLossSpike::Skip), ("roll-back", OnLossSpike::RollBack)];

fn micro_batch() -> Form<MicroBatchSize> {
    let rows = |size: &MicroBatchSize| match *size {
        MicroBatchSize::Auto => None,
        MicroBatchSize::Rows(rows) => Some(rows),
    };
    unless("auto", whole(1..)).map(|rows| rows.map_or(MicroBatchSize::Auto, MicroBatchSize::Rows), rows)
}

fn split() -> Form<Split> {
    let weights = list(number(0.0..));
    let read = move |path: &str, node: &Node| match &node.value {
        Value::String(word) if word == "speed" => Ok(Split::Speed),
        Value::String(word) if word == "even" => Ok(Split::Even),
        _ => {
            let some = weights.read(path, node).ok().filter(|weights| weights.iter().sum::<f64>() > 0.0);
            some.map(Split::Weights).ok_or(Wrong::Other)
        }
    };
    let write = |split: &Split| match split {
        Split::Speed => quoted("speed"),
        Split::Even => quoted("even"),
        Split::Weights(weights) => format!("{weights:?}"),
    };
    Form::new(list(number(0.0..)).allowed, read, write)
        .described("\"speed\", \"even\" or a list of weights that are not all 0, one a device")
}

/// The section's fields.
pub(super) fn fields(train: &mut TrainOptions, checkpoints: &mut CheckpointPolicy, f: &mut Fields<'_>) {
    let spike = &mut train.loss_spike;
    f.field("epochs", "Passes over the training data", whole(1..), &mut train.epochs);
    f.field("batch", "Samples of a batch, over all devices together", whole(1..), &mut train.batch);
    f.field("accumulate", "Batches whose gradients make one update", whole(1..), &mut train.accumulate);
    f.field("micro_batch", "Samples that a device runs at once", micro_batch(), &mut train.micro_batch);
    f.field("seed", "Seeds initial weights, order, the held-out part and dropout", whole(0..), &mut train.seed);
    f.field("clip_norm", "Largest norm of the gradient", unless("none", single(ABOVE_ZERO)), &mut train.clip_norm);
    f.field("shuffle", "Whether each epoch has an order of its own", flag(), &mut train.shuffle);
    f.field("drop_last", "Leaves out an epoch's last batch when it is short", flag(), &mut train.drop_last);
    f.field("split", "How a batch is divided over devices", split(), &mut train.split);
    f.field("deterministic", "Keeps the first split", flag(), &mut train.deterministic);
    f.field("checkpoint_every", "Steps between two checkpoints; 0: none", whole(0..), &mut checkpoints.every);
    f.field("keep_last", "Checkpoints that are kept", whole(1..), &mut checkpoints.keep_last);
    f.field("keep_best", "Best checkpoints that are kept beside them", whole(0..), &mut checkpoints.keep_best);
    let compression = &mut train.gradient_compression;
    f.field("gradient_compression", "How gradients reach the host", choice(&COMPRESSIONS), compression);
    let limit = &mut train.nonfinite_limit;
    f.field("nonfinite_limit", "Updates in a row that may not be finite", whole(1..), limit);
    f.field("on_loss_spike", "What to do about a loss spike", choice(&ON_LOSS_SPIKE), &mut spike.action);
    f.field("spike_threshold", "Deviations that make a spike", number(ABOVE_ZERO), &mut spike.threshold);
    f.field("spike_warmup", "Steps before the first that can be one", whole(0..), &mut spike.warmup);
    let (verify, snapshot) = (&mut train.verify_weights_every, &mut train.snapshot_every);
    f.field("verify_weights_every", "Steps between two comparisons of all weights; 0: never", whole(0..), verify);
    f.field("snapshot_every", "Steps between two snapshots in host memory; 0: only the first", whole(0..), snapshot);
    let cross_check = &mut train.cross_check_every;
    f.field("cross_check_every", "Steps between two cross-checks of devices; 0: never", whole(0..), cross_check);
}
