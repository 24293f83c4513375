//! `everygpu train`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::Store;
use everygpu::config::RunConfig;
use everygpu::data::Dataset;
use everygpu::gpu::Adapters;
use everygpu::trace;
use everygpu::train::{DataCard, FitReport, RunFolder, Trainer};

use super::Settings;
use super::progress::Report;

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
    trace: Trace,
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
        self.trace.around(|| fit(&config, name, self.resume.as_deref()))
    }
}

/// Trains as `config` says, in a new run folder called after `name`, or in `resume`.
pub fn fit(config: &RunConfig, name: &str, resume: Option<&Path>) -> anyhow::Result<()> {
    // What can be wrong with the run file, the data and the checkpoint comes before any device is opened.
    let data = config.data.load(config.train.seed)?;
    let task = config.task(&data.train)?;
    let card = DataCard::new(&data.train, &data.normalizer);
    let checkpoint = resume.map(latest_checkpoint).transpose()?;
    let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
    let devices = &config.devices;
    let mut trainer = Trainer::new(task, config.options(), &adapters, devices.replicas, devices.memory_limit)?;

    let policy = config.policy();
    let folder = match (resume, checkpoint) {
        (Some(folder), Some(path)) => {
            trainer.restore(&Store::load(&path)?).with_context(|| format!("resuming from {}", path.display()))?;
            println!("resuming at step {} from {}", trainer.position().step, path.display());
            RunFolder::reopen(folder, trainer.position().step, policy)?
        }
        _ => RunFolder::create(&config.output.dir, name, policy)?,
    };
    folder.write(RunFolder::CONFIG, &config.to_toml())?;
    folder.write_json(RunFolder::DATA, &card)?;

    let interrupted = folder.interrupt_flag();
    watch_for_interrupts(interrupted.clone())?;
    let train: Arc<dyn Dataset> = Arc::new(data.train);
    let validation = data.validation.map(|data| Arc::new(data) as Arc<dyn Dataset>);
    let mut report = Report::new(&trainer, folder, train.len());
    let outcome = trainer.fit(&train, validation.as_ref(), &mut report);
    let folder = report.finish();
    let report = outcome.with_context(|| format!("the run's files are in {}", folder.path().display()))?;
    conclude(&report, &folder, interrupted.load(Ordering::Relaxed))
}

fn latest_checkpoint(folder: &Path) -> anyhow::Result<PathBuf> {
    let latest = Store::open(RunFolder::checkpoints(folder))?.latest()?;
    let entry = latest.with_context(|| format!("{}: there is no checkpoint to go on from", folder.display()))?;
    Ok(entry.path)
}

/// The first Ctrl-C (or termination signal) ends the training after the step; a second one ends the program at once.
fn watch_for_interrupts(flag: Arc<AtomicBool>) -> anyhow::Result<()> {
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
        eprintln!("\nfinishing the step and saving; once more to end at once");
    })
    .context("the handler for Ctrl-C cannot be installed")
}

fn conclude(report: &FitReport, folder: &RunFolder, interrupted: bool) -> anyhow::Result<()> {
    let path = folder.path().display();
    if interrupted && report.stopped {
        anyhow::bail!("interrupted at step {}; go on with: everygpu train --resume {path}", report.steps);
    }
    println!("run folder: {path}");
    Ok(())
}
