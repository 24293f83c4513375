//! `everygpu train`

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::{Imported, Match, NameMap, check_writable, native_path, read_weights};
use everygpu::config::{RunConfig, RunFile};
use everygpu::gpu::Adapters;
use everygpu::run::{DataCard, RunFolder, Samples};
use everygpu::trace;
use everygpu::train::{FitReport, Trainer};

use super::progress::Report;
use super::resumed::{Resumed, other_rate};
use super::{Settings, interrupt, path, placed, say};

/// Train the network that a run file describes
#[derive(Debug, Args)]
pub struct Train {
    /// The run file; with --resume it may be left out, and the resumed run's own is taken
    #[arg(value_name = "RUN.toml", required_unless_present = "resume", value_parser = path())]
    run: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
    /// Go on from the last checkpoint in this run folder
    #[arg(long, value_name = "RUN_DIR", value_parser = path())]
    resume: Option<PathBuf>,
    #[command(flatten)]
    pub start: Start,
    #[command(flatten)]
    trace: Trace,
}

/// Where weights come from, other than chance.
#[derive(Debug, Default, Args)]
pub struct Start {
    /// Start from the weights in this file, for example a PyTorch module's state_dict saved with safetensors
    #[arg(long, value_name = "FILE.safetensors", conflicts_with = "resume", value_parser = path())]
    init: Option<PathBuf>,
    /// What the file calls FROM is called TO here, for example 0=linear_1; may be repeated
    #[arg(long = "init-map", value_name = "FROM=TO", requires = "init")]
    map: Vec<String>,
    /// Take only what fits from the file, instead of failing where something is missing, left over or of another shape
    #[arg(long = "init-partial", requires = "init")]
    partial: bool,
}

impl Start {
    /// Overwrites the initial weights of `trainer`.
    fn apply(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        let Some(file) = &self.init else { return Ok(()) };
        let mut map = NameMap::default();
        self.map.iter().try_for_each(|rule| map.rule(rule)).context("--init-map")?;
        let how = if self.partial { Match::Partial } else { Match::Strict };
        let Imported { values, missing, unused } = read_weights(file, &trainer.shapes(), &map, how)?;
        let lead = trainer.coordinator().lead();
        let mut weights = trainer.weights_of(lead)?;
        let taken = values.len();
        for (name, new) in values {
            if let Some(old) = weights.get_mut(&name) {
                *old = new;
            }
        }
        trainer.set_weights(&weights)?;
        say(format!("{taken} tensors from {}", file.display()));
        for (what, names) in [("keep their initial values", missing), ("of the file are not used", unused)] {
            if !names.is_empty() {
                say(format!("  {} {what}: {}", names.len(), names.join(", ")));
            }
        }
        Ok(())
    }
}

/// A timeline of the run.
#[derive(Debug, Default, Args)]
pub struct Trace {
    /// Write a timeline of the run in Chrome's trace format, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "FILE", value_parser = path())]
    trace: Option<PathBuf>,
}

impl Trace {
    /// Runs `work` and writes its timeline, also when it fails.
    pub fn around(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some(path) = &self.trace else { return work() };
        check_writable(path)?;
        trace::start();
        let outcome = work();
        let written = trace::finish(path);
        // A disk that is full fails both.
        outcome.and(written.map_err(anyhow::Error::from))
    }
}

impl Train {
    pub fn run(self) -> anyhow::Result<()> {
        let path = match (&self.run, &self.resume) {
            (Some(file), _) => file.clone(),
            (None, Some(folder)) => folder.join(RunFolder::CONFIG),
            (None, None) => unreachable!("clap asks for one of them"),
        };
        let (file, overrides) = (RunFile::read(&path)?, self.settings.overrides()?);
        let resumed = self.resume.map(Resumed::open).transpose()?;
        let config = match &resumed {
            Some(run) => file.config_to_resume(&overrides, &run.snapshot)?,
            None => file.config(&overrides)?,
        };
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("run");
        self.trace.around(|| fit(&config, name, resumed, &self.start)).map_err(|error| placed(error, &config))
    }
}

/// Trains as `config` says, in a new run folder called after `name`, or in that of the run `resumed`.
pub fn fit(config: &RunConfig, name: &str, resumed: Option<Resumed>, start: &Start) -> anyhow::Result<()> {
    // What can be wrong with the run file, the data and the checkpoint comes before any device is opened.
    let before = resumed.as_ref().map(|run| &run.card);
    let data = config.data.load_as(config.train.seed, &config.model.loss, before)?;
    let samples = Samples::of(data.train.as_ref(), data.validation.as_deref());
    let card = DataCard { samples: Some(samples), ..data.card };
    let task = config.task(&card)?;
    resumed.as_ref().map_or(Ok(()), |run| run.check_data(config, &card))?;
    let train = data.train;
    let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
    let trainer = Trainer::builder(task, config.train.clone()).adapters(&adapters).replicas(config.devices.replicas);
    let mut trainer = trainer.memory_limit(config.devices.memory_limit).start()?;

    start.apply(&mut trainer)?;

    let policy = config.checkpoints;
    trainer.can_train_on(train.as_ref())?;
    for sentence in config.without_effect(trainer.coordinator().labels().len()) {
        log::warn!("{sentence}");
    }
    let is_new = resumed.is_none();
    let folder = match resumed {
        Some(Resumed { folder, path, snapshot, .. }) => {
            trainer.restore(&snapshot).with_context(|| format!("resuming from {}", path.display()))?;
            let (epoch, epochs) = (trainer.position().epoch, config.train.epochs);
            if epoch >= epochs {
                say(format!(
                    "nothing is left to do: all {epoch} epochs of {} are done already, and train.epochs is {epochs}; \
                     expected more than {epoch}, as in --set train.epochs={}",
                    folder.display(),
                    epoch + 1
                ));
                return Ok(());
            }
            say(format!("resuming at step {} from {}", trainer.position().step, path.display()));
            if let Some(sentence) = other_rate(&folder, config, trainer.position(), train.len())? {
                log::warn!("{sentence}");
            }
            RunFolder::reopen(&folder, trainer.position(), policy)?
        }
        None => RunFolder::create(&config.output.dir, name, policy)?,
    };
    let interrupted = folder.interrupt_flag();
    let described = folder.write(RunFolder::CONFIG, &config.to_toml());
    let described = described.and_then(|()| folder.write_json(RunFolder::DATA, &card)).map_err(anyhow::Error::from);
    let (outcome, mut folder) = match described.and_then(|()| interrupt::watch(interrupted.clone())) {
        Ok(()) => {
            let mut report = Report::new(&trainer, folder, train.len());
            let outcome = trainer.fit(&train, data.validation.as_ref(), &mut report);
            (outcome.map_err(anyhow::Error::from), report.finish())
        }
        // A full disk, most likely; what was there before stays.
        Err(error) => (Err(error), folder),
    };
    if outcome.is_err() {
        keep_snapshot(&trainer, &mut folder);
    }
    let path = folder.path().to_owned();
    match outcome {
        Ok(report) => conclude(&report, &folder, interrupted.load(Ordering::Relaxed)),
        Err(error) if is_new && folder.discard_if_unused().unwrap_or(false) => Err(error),
        Err(error) => Err(error.context(format!("the run's files are in {}", path.display()))),
    }
}

/// Saves what is in host memory of a training that no device is left of.
fn keep_snapshot(trainer: &Trainer, folder: &mut RunFolder) {
    let left = trainer.coordinator().alive().contains(&true);
    let Some(snapshot) = trainer.last_snapshot().filter(|_| !left) else { return };
    let step = snapshot.step;
    match folder.keep(snapshot) {
        Ok(true) => say(format!("the snapshot of step {step}, which was in host memory, is saved as a checkpoint")),
        Ok(false) => {}
        // Why the training ended is told by its own error.
        Err(error) => log::error!("the snapshot of step {step}, which was in host memory, could not be saved: {error}"),
    }
}

fn conclude(report: &FitReport, folder: &RunFolder, interrupted: bool) -> anyhow::Result<()> {
    let path = folder.path().display();
    if interrupted && report.stopped {
        let program = std::env::args_os().next().map_or_else(|| "everygpu".into(), native_path);
        let (program, path) = (quoted(&program), quoted(folder.path()));
        anyhow::bail!("interrupted at step {}; go on with: {program} train --resume {path}", report.steps);
    }
    say(format!("run folder: {path}"));
    Ok(())
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:=@%~\\".contains(c);
    match path.chars().all(plain) {
        true => path,
        false if cfg!(windows) => format!("\"{path}\""),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}
