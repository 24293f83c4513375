//! A run that is gone on with: its last checkpoint, and what of the run must be as it was.

use std::path::{Path, PathBuf};

use anyhow::Context;
use everygpu::checkpoint::{Entry, Snapshot, Store};
use everygpu::config::{DataConfig, RunConfig, Source};
use everygpu::data::Sampler;
use everygpu::optim::At;
use everygpu::run::{DataCard, RunFolder, Samples};
use everygpu::train::{Position, check_state};

use super::run::same_classes;

/// Where a run is to go on from.
pub struct Resumed {
    pub folder: PathBuf,
    /// The checkpoint's.
    pub path: PathBuf,
    pub snapshot: Snapshot,
    /// What its data looked like.
    pub card: DataCard,
}

impl Resumed {
    /// The last checkpoint of the run in `folder`.
    pub fn open(folder: PathBuf) -> anyhow::Result<Self> {
        let mut entries = Store::open(RunFolder::checkpoints(&folder))?.list()?;
        let latest = entries.pop();
        let Entry { path, .. } =
            latest.with_context(|| format!("{}: there is no checkpoint to go on from", folder.display()))?;
        let checked = Store::load(&path).and_then(|snapshot| check_state(&snapshot).map(|()| snapshot));
        let snapshot = checked.with_context(|| match entries.last() {
            Some(earlier) => format!("to go on from step {} instead, remove {}", earlier.step, path.display()),
            None => "the only checkpoint cannot be used".to_owned(),
        })?;
        let card = RunFolder::read_json(&folder, RunFolder::DATA)?;
        Ok(Self { folder, path, snapshot, card })
    }

    /// Checks that the samples mean what they meant: the run holds out the same ones, and its data looked like `card`.
    pub fn check_data(&self, config: &RunConfig, card: &DataCard) -> anyhow::Result<()> {
        let folder = &self.folder;
        let DataConfig { validation, source, scale, .. } = RunConfig::load(&folder.join(RunFolder::CONFIG), &[])?.data;
        let label = |source: &Source| match source {
            Source::Csv { label, regression, .. } => Some((label.clone(), *regression)),
            _ => None,
        };
        anyhow::ensure!(
            label(&source) == label(&config.data.source),
            "{}: the run was trained on other targets; leave data.label and data.regression as they were",
            folder.display(),
        );
        anyhow::ensure!(
            validation == config.data.validation,
            "{}: the run held out {validation:?} of its data; with other samples, some of those it has learned would be held \
             out. Leave data.validation as it was",
            folder.display(),
        );
        let before = &self.card;
        same_classes(folder, before, card)?;
        anyhow::ensure!(
            before.border == card.border,
            "{}: the run was trained on images with a border of {:?}, they have {:?} now; leave data.padding as it was",
            folder.display(),
            before.border.0,
            card.border.0,
        );
        let scaled_otherwise = || {
            format!(
                "{}: the run was trained on inputs that were scaled otherwise; leave data.scale as it was",
                folder.display()
            )
        };
        anyhow::ensure!(before.normalizer == card.normalizer || scale == config.data.scale, scaled_otherwise());
        anyhow::ensure!(
            before.tokenizer == card.tokenizer,
            "{}: the run was trained on other tokens: the tokenizer has changed, or the characters of the text have",
            folder.display(),
        );
        if let (Some(before), Some(now)) = (&before.samples, &card.samples) {
            anyhow::ensure!(before == now, "{}", self.changed(before, now));
        }
        // Measured on other samples, in a run that does not know which it had.
        anyhow::ensure!(before.normalizer == card.normalizer, scaled_otherwise());
        Ok(())
    }

    /// What to say of samples that are not those of the run.
    fn changed(&self, before: &Samples, now: &Samples) -> String {
        let counts = |samples: &Samples| {
            let held_out = samples.held_out.as_ref().map_or(0, |data| data.samples);
            format!("{} samples to train on and {held_out} held out", samples.train.samples)
        };
        let (then, now) = (counts(before), counts(now));
        let numbers =
            if then == now { format!("{then}, as then, but others") } else { format!("{now} now, {then} then") };
        format!(
            "{}: the data is not what the run was trained on ({numbers}). With other samples, some of those it has learned \
             could be held out. Put the data back as it was, or start a new run from the checkpoint's weights: train RUN.toml \
             --init {}",
            self.folder.display(),
            self.path.join("weights.safetensors").display()
        )
    }
}

/// What is to be said where the run in `folder` goes on at `position`, on so many samples, at another learning rate
/// than it would have had there: a schedule over the whole run is another one when the run gets longer.
pub fn other_rate(
    folder: &Path,
    config: &RunConfig,
    position: &Position,
    samples: usize,
) -> anyhow::Result<Option<String>> {
    let before = RunConfig::load(&folder.join(RunFolder::CONFIG), &[])?;
    if before.train.schedule != config.train.schedule || before.train.epochs == config.train.epochs {
        return Ok(None);
    }
    let options = &config.train;
    let sampler = Sampler::new(samples, options.window(), options.seed, options.shuffle, options.drop_last)?;
    let steps_per_epoch = sampler.steps_per_epoch() as u64;
    let total = |epochs: u64| {
        let left = steps_per_epoch.saturating_mul(epochs.saturating_sub(position.epoch));
        position.step.saturating_add(left).saturating_sub(position.step_in_epoch)
    };
    let rate = |step, epochs| options.schedule.rate(&At { step, total: total(epochs), steps_per_epoch, reductions: 0 });
    // A run that is over has no rate for a further step: its last step's is looked at.
    let step = position.step.min(total(before.train.epochs).saturating_sub(1));
    let (old, longer) = (rate(step, before.train.epochs), rate(step, config.train.epochs));
    if (longer - old).abs() <= 0.01 * old {
        return Ok(None);
    }
    let new = rate(position.step, config.train.epochs);
    Ok(Some(format!(
        "the learning rate goes from {old:.3e} to {new:.3e} here: schedule.kind goes over the whole run, which has \
         train.epochs = {} now and had {}. To go on at a rate of your own, set schedule.kind = \"constant\" and optimizer.lr",
        config.train.epochs, before.train.epochs
    )))
}
