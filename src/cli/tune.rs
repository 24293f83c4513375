//! `everygpu tune`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::{Snapshot, Store, check_writable, write_atomic};
use everygpu::config::RunFile;
use everygpu::gpu::Adapters;
use everygpu::run::RunFolder;
use everygpu::train::MicroBatchSize;
use everygpu::tune::{Advice, NoiseScale, Outcome, Size, Sweep, TuneReport, Tuned, Tuning, plot, tune};

use super::{Settings, path, placed, seconds, terminal};

/// Measure which batch sizes suit a run: speed and memory by micro-batch on each adapter, and how large a batch is
/// useful
#[derive(Debug, Args)]
pub struct Tune {
    /// The run file
    #[arg(value_name = "RUN.toml", value_parser = path())]
    run: PathBuf,
    #[command(flatten)]
    settings: Settings,
    /// Take the weights of the last checkpoint in this run folder instead of initial ones
    #[arg(long, value_name = "RUN_DIR", value_parser = path())]
    resume: Option<PathBuf>,
    /// Seconds that the timed steps of one size may take
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Write the recommended train.micro_batch, and nothing else, into the run file
    #[arg(long)]
    apply: bool,
    /// Draw samples/s and bytes by size
    #[arg(long, value_name = "FILE", value_parser = path())]
    svg: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Tune {
    pub fn run(self) -> anyhow::Result<()> {
        let mut file = RunFile::read(&self.run)?;
        let config = file.config(&self.settings.overrides()?)?;
        self.svg.as_ref().map_or(Ok(()), check_writable)?;
        if self.apply {
            file.check_writable()?;
        }
        let data = config.data.load(config.train.seed, &config.model.loss)?;
        let task = config.task(&data.card)?;
        let snapshot = self.resume.as_deref().map(latest).transpose()?;
        let tuning = Tuning {
            task,
            options: config.train.clone(),
            data: data.train,
            adapters: Adapters::discover()?.select(&config.devices.adapters)?,
            replicas: config.devices.replicas,
            memory_limit: config.devices.memory_limit,
            snapshot,
            seconds: self.seconds,
        };
        let out = &mut terminal::out();
        let mut failed = None;
        let mut observe = |what: Tuned<'_>| {
            // A closed pipe is told by what is written afterwards.
            if !self.json && failed.is_none() {
                failed = progress(&what, out).err();
            }
        };
        let report = tune(&tuning, &mut observe).map_err(|error| placed(error.into(), &config))?;
        failed.map_or(Ok(()), Err)?;
        if let Some(svg) = &self.svg {
            write_atomic(svg, plot(&report).as_bytes())?;
        }
        if self.json {
            writeln!(terminal::data(), "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            write_advice(&report, out)?;
        }
        let rows = report.advice.micro_batch;
        if self.apply {
            file.set_micro_batch(rows).with_context(|| format!("train.micro_batch = {rows} was not written"))?;
            let told = format!("wrote train.micro_batch = {rows} to {}, nothing else", self.run.display());
            if self.json { terminal::tell(told) } else { writeln!(out, "\n{told}")? }
        } else if !self.json && config.train.micro_batch != MicroBatchSize::Rows(rows) {
            writeln!(out, "\n--apply writes train.micro_batch = {rows} to {}", self.run.display())?;
        }
        Ok(())
    }
}

fn latest(folder: &Path) -> anyhow::Result<Snapshot> {
    let entry = Store::open(RunFolder::checkpoints(folder))?.latest()?;
    let entry = entry.with_context(|| format!("{}: there is no checkpoint", folder.display()))?;
    Ok(Store::load(&entry.path)?)
}

/// A line of the table, as soon as it is known.
fn progress(what: &Tuned<'_>, out: &mut impl Write) -> std::io::Result<()> {
    match what {
        Tuned::Adapter(adapter) => {
            writeln!(out, "{}: {}, driver {}", adapter.label(), adapter.kind().name(), adapter.driver())?;
            writeln!(out, "{HEAD}")
        }
        Tuned::Size(size) => writeln!(out, "{}", row(size)),
        Tuned::Sweep(Sweep { knee: Some(knee), end, .. }) => writeln!(out, "the knee is at {knee}; {}\n", end.words()),
        Tuned::Again(adapter, size) => {
            writeln!(out, "{} at the largest knee\n{HEAD}\n{}\n", adapter.label(), row(size))
        }
        Tuned::Sweep(sweep) => writeln!(out, "nothing ran: {}\n", sweep.end.words()),
    }
}

const HEAD: &str = "   rows    predicted bytes    allocated bytes    samples/s      ms/step  note";

fn row(size: &Size) -> String {
    let predicted = size.predicted_bytes.map_or_else(|| "-".to_owned(), |b| b.to_string());
    let (allocated, speed, step, note) = match &size.outcome {
        Outcome::Ran(m) => {
            let digits = if m.samples_per_second < 100.0 { 1 } else { 0 };
            (
                m.allocated_bytes.to_string(),
                format!("{:.digits$}", m.samples_per_second),
                format!("{:.3}", 1000.0 * m.seconds_per_step),
                format!("{} steps", m.steps),
            )
        }
        Outcome::Skipped { reason } => ("-".into(), "-".into(), "-".into(), format!("not tried: {reason}")),
        Outcome::Failed { reason } => ("-".into(), "-".into(), "-".into(), format!("failed: {reason}")),
    };
    format!("{:>7} {predicted:>18} {allocated:>18} {speed:>12} {step:>12}  {note}", size.rows)
}

fn write_advice(report: &TuneReport, out: &mut impl Write) -> std::io::Result<()> {
    if let Some(noise) = &report.noise {
        writeln!(out, "gradient noise scale: {}", noise_words(noise))?;
    }
    let Advice { micro_batch, batch, batch_now, reasons, learning_rate, warnings } = &report.advice;
    writeln!(out, "recommended micro-batch: {micro_batch}")?;
    writeln!(out, "recommended batch: {batch} samples (the run has {batch_now})")?;
    for reason in reasons {
        writeln!(out, "  - {reason}")?;
    }
    if let Some(rate) = learning_rate {
        let warmup = rate.warmup.map(|w| format!(" and schedule.warmup = {w}")).unwrap_or_default();
        writeln!(out, "a batch of {batch} goes with optimizer.lr = {}{warmup} instead of {}", rate.rate, rate.now)?;
        writeln!(out, "  - {}", rate.reason)?;
    }
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

fn noise_words(noise: &NoiseScale) -> String {
    let weights = if noise.initial_weights { "the initial weights" } else { "the checkpoint's weights" };
    let from = format!("at {weights}, from {} batches of {} in parts of {}", noise.batches, noise.big, noise.small);
    let scale = match (noise.batch, noise.standard_error) {
        (Some(batch), Some(error)) => format!("{batch:.1} ± {error:.1} samples"),
        (Some(batch), None) => format!("about {batch:.0} samples, very uncertain"),
        (None, _) => "not measurable, the gradient drowns in the noise of these samples".to_owned(),
    };
    format!("{scale} ({from}); it grows during training")
}
