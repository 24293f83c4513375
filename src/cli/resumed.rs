//! A run that is gone on with: its last checkpoint, and what of the run must be as it was.

use std::path::PathBuf;

use anyhow::Context;
use everygpu::checkpoint::{Entry, Snapshot, Store};
use everygpu::config::RunConfig;
use everygpu::train::{DataCard, RunFolder};

/// Where a run is to go on from.
pub struct Resumed {
    pub folder: PathBuf,
    /// The checkpoint's.
    pub path: PathBuf,
    pub snapshot: Snapshot,
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
        Ok(Self { folder, path, snapshot })
    }

    /// Checks that the samples mean what they meant: the run holds out the same ones, and its data looked like `card`.
    pub fn check_data(&self, config: &RunConfig, card: &DataCard) -> anyhow::Result<()> {
        let folder = &self.folder;
        let validation = RunConfig::load(&folder.join(RunFolder::CONFIG), &[])?.data.validation;
        anyhow::ensure!(
            validation == config.data.validation,
            "{}: the run held out {validation:?} of its data; with other samples, some of those it has learned would be held \
             out. Leave data.validation as it was",
            folder.display(),
        );
        let before: DataCard = RunFolder::read_json(folder, RunFolder::DATA)?;
        anyhow::ensure!(
            before.classes == card.classes,
            "{}: the run was trained on classes {:?}, the data has {:?} now",
            folder.display(),
            before.classes.unwrap_or_default(),
            card.classes.as_deref().unwrap_or_default()
        );
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
