//! A run that is gone on with: its last checkpoint, and what of the run must be as it was.

use std::path::PathBuf;

use anyhow::Context;
use everygpu::checkpoint::{Entry, Snapshot, Store};
use everygpu::config::{DataConfig, RunConfig, Source};
use everygpu::train::{DataCard, RunFolder};

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
        let snapshot = Store::load(&path).with_context(|| match entries.last() {
            Some(earlier) => format!("to go on from step {} instead, remove {}", earlier.step, path.display()),
            None => "the only checkpoint cannot be used".to_owned(),
        })?;
        let card = RunFolder::read_json(&folder, RunFolder::DATA)?;
        Ok(Self { folder, path, snapshot, card })
    }

    /// Checks that the samples mean what they meant: the run holds out the same ones, and its data looked like `card`.
    pub fn check_data(&self, config: &RunConfig, card: &DataCard) -> anyhow::Result<()> {
        let folder = &self.folder;
        let DataConfig { validation, source, .. } = RunConfig::load(&folder.join(RunFolder::CONFIG), &[])?.data;
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
        anyhow::ensure!(
            before.normalizer == card.normalizer,
            "{}: the run was trained on inputs that were scaled otherwise; leave data.scale as it was",
            folder.display(),
        );
        anyhow::ensure!(
            before.tokenizer == card.tokenizer,
            "{}: the run was trained on other tokens: the tokenizer has changed, or the characters of the text have",
            folder.display(),
        );
        Ok(())
    }
}
