//! `everygpu train`

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::{Entry, Imported, Match, NameMap, Snapshot, Store, read_weights};
use everygpu::config::RunConfig;
use everygpu::gpu::Adapters;
use everygpu::trace;
use everygpu::train::{DataCard, FitReport, RunFolder, Trainer};

use super::progress::Report;
use super::{Settings, interrupt, placed, say};

/// Train the network that a run file describes
#[derive(Debug, Args)]
pub struct Train {
    /// The run file; with --resume it may be left out, and the resumed run's own is taken
    #[arg(value_name = "RUN.toml", required_unless_present = "resume")]
    run: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
    /// Go on from the last checkpoint in this run folder
    #[arg(long, value_name = "RUN_DIR")]
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
    #[arg(long, value_name = "FILE.safetensors", conflicts_with = "resume")]
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
            if let Some((_, old)) = weights.iter_mut().find(|(n, _)| *n == name) {
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
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl Trace {
    /// Runs `work` and writes its timeline, also when it fails.
    pub fn around(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some(path) = &self.trace else { return work() };
        // A file that cannot be written is found out before the training, not after it.
        std::fs::write(path, "").with_context(|| format!("{}", path.display()))?;
        trace::start();
        let outcome = work();
        trace::finish(path)?;
        outcome
    }
}

impl Train {
    pub fn run(self) -> anyhow::Result<()> {
        let file = match (&self.run, &self.resume) {
            (Some(file), _) => file.clone(),
            (None, Some(folder)) => folder.join(RunFolder::CONFIG),
            (None, None) => unreachable!("clap asks for one of them"),
        };
        let config = RunConfig::load(&file, &self.settings.overrides()?)?;
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("run");
        self.trace
            .around(|| fit(&config, name, self.resume.as_deref(), &self.start))
            .map_err(|error| placed(error, &config))
    }
}

/// Trains as `config` says, in a new run folder called after `name`, or in `resume`.
pub fn fit(config: &RunConfig, name: &str, resume: Option<&Path>, start: &Start) -> anyhow::Result<()> {
    // What can be wrong with the run file, the data and the checkpoint comes before any device is opened.
    let data = config.data.load(config.train.seed)?;
    let card = data.card;
    let task = config.task(&card)?;
    let resumed = resume.map(|folder| Resumed::open(folder, config, &card)).transpose()?;
    let train = data.train;
    let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
    let devices = &config.devices;
    let mut trainer = Trainer::new(task, config.options(), &adapters, devices.replicas, devices.memory_limit)?;

    start.apply(&mut trainer)?;

    let policy = config.policy();
    trainer.can_train_on(train.as_ref())?;
    let folder = match (resume, resumed) {
        (Some(folder), Some(Resumed { path, snapshot })) => {
            trainer.restore(&snapshot).with_context(|| format!("resuming from {}", path.display()))?;
            say(format!("resuming at step {} from {}", trainer.position().step, path.display()));
            RunFolder::reopen(folder, trainer.position(), policy)?
        }
        _ => RunFolder::create(&config.output.dir, name, policy)?,
    };
    let described =
        folder.write(RunFolder::CONFIG, &config.to_toml()).and_then(|()| folder.write_json(RunFolder::DATA, &card));
    if let Err(error) = described {
        // A full disk, most likely; what was there before stays.
        return Err(if resume.is_none() { folder.discard().err().unwrap_or(error) } else { error }.into());
    }

    let (first, epoch) = (trainer.position().step, trainer.position().epoch);
    let interrupted = folder.interrupt_flag();
    interrupt::watch(interrupted.clone())?;
    let mut report = Report::new(&trainer, folder, train.len());
    let outcome = trainer.fit(&train, data.validation.as_ref(), &mut report);
    let folder = report.finish();
    let report = match outcome {
        Ok(report) => report,
        // Nothing was trained, so that there is nothing to keep.
        Err(error) if resume.is_none() && trainer.position().step == first => {
            folder.discard()?;
            return Err(error.into());
        }
        Err(error) => return Err(error).with_context(|| format!("the run's files are in {}", folder.path().display())),
    };
    if epoch >= config.train.epochs {
        say(format!("all {} epochs are done already; for more, add --set train.epochs=N", config.train.epochs));
    }
    conclude(&report, &folder, interrupted.load(Ordering::Relaxed))
}

/// Where a run is to go on from.
struct Resumed {
    path: PathBuf,
    snapshot: Snapshot,
}

impl Resumed {
    /// The last checkpoint of the run in `folder`, whose data looked like `card` if it is to go on with the same meaning.
    fn open(folder: &Path, config: &RunConfig, card: &DataCard) -> anyhow::Result<Self> {
        let mut entries = Store::open(RunFolder::checkpoints(folder))?.list()?;
        let latest = entries.pop();
        let Entry { path, .. } =
            latest.with_context(|| format!("{}: there is no checkpoint to go on from", folder.display()))?;
        let snapshot = Store::load(&path).with_context(|| match entries.last() {
            Some(earlier) => format!("to go on from step {} instead, remove {}", earlier.step, path.display()),
            None => "the only checkpoint cannot be used".to_owned(),
        })?;
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
            before.normalizer == card.normalizer,
            "{}: the run was trained on inputs that were scaled otherwise; leave data.scale as it was",
            folder.display(),
        );
        anyhow::ensure!(
            before.tokenizer == card.tokenizer,
            "{}: the run was trained on other tokens: the tokenizer has changed, or the characters of the text have",
            folder.display(),
        );
        Ok(Self { path, snapshot })
    }
}

fn conclude(report: &FitReport, folder: &RunFolder, interrupted: bool) -> anyhow::Result<()> {
    let path = folder.path().display();
    if interrupted && report.stopped {
        let program = std::env::args_os().next().map_or_else(|| "everygpu".into(), PathBuf::from);
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
