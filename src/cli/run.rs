//! A finished (or running) run's folder, as `eval` and `predict` open it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use everygpu::checkpoint::{Snapshot, Store};
use everygpu::config::{Override, RunConfig};
use everygpu::nn::Loss;
use everygpu::run::{DataCard, RunFolder};
use everygpu::train::{Task, check_trained};

/// Which of a run's checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// The one with the best held-out accuracy or loss; the last one of a run that held nothing out
    Best,
    /// The last one
    Latest,
}

/// What a run left behind.
pub struct Run {
    pub config: RunConfig,
    pub card: DataCard,
    pub checkpoint: PathBuf,
    pub snapshot: Snapshot,
}

impl Run {
    /// The names of the classes whose probabilities `task` predicts; none where it predicts something else.
    pub fn classes(&self, task: &Task) -> Option<&[String]> {
        self.card.classes.as_deref().filter(|_| matches!(task.loss, Loss::CrossEntropy(_)))
    }
}

/// Checks that data which is read once more has the classes that the run in `folder` was trained on.
pub fn same_classes(folder: &Path, before: &DataCard, now: &DataCard) -> anyhow::Result<()> {
    anyhow::ensure!(
        before.classes == now.classes,
        "{}: the run was trained on classes {:?}, the data has {:?} now",
        folder.display(),
        before.classes.as_deref().unwrap_or_default(),
        now.classes.as_deref().unwrap_or_default()
    );
    Ok(())
}

/// Opens the run in `folder`, with `overrides` in the place of what its run file says.
pub fn open(folder: &Path, which: Which, overrides: &[Override]) -> anyhow::Result<Run> {
    let config = RunConfig::load(&folder.join(RunFolder::CONFIG), overrides)?;
    let card: DataCard = RunFolder::read_json(folder, RunFolder::DATA)?;
    let store = Store::open(RunFolder::checkpoints(folder))?;
    let entry = match which {
        // A run that was stopped within its first epoch has no score yet.
        Which::Best => match store.best()? {
            Some(entry) => Some(entry),
            None => store.latest()?,
        },
        Which::Latest => store.latest()?,
    };
    let entry = entry.with_context(|| format!("{}: there is no checkpoint", folder.display()))?;
    let snapshot = Store::load(&entry.path)?;
    check_trained(&snapshot).with_context(|| entry.path.display().to_string())?;
    Ok(Run { config, card, checkpoint: entry.path, snapshot })
}
