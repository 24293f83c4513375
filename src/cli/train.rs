//! `everygpu train`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use everygpu::config::RunConfig;
use everygpu::data::Dataset;
use everygpu::gpu::Adapters;
use everygpu::train::{Flow, Progress, Trainer};

use super::Settings;

/// Train the network that a run file describes
#[derive(Debug, Args)]
pub struct Train {
    /// The run file
    #[arg(value_name = "RUN.toml")]
    run: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
    /// Go on from the last checkpoint in this run folder
    #[arg(long, value_name = "RUN_DIR")]
    resume: Option<PathBuf>,
}

impl Train {
    pub fn run(self) -> anyhow::Result<()> {
        let config = RunConfig::load(&self.run, &self.settings.overrides()?)?;
        fit(&config, self.resume.as_deref())
    }
}

/// Trains as `config` says.
pub fn fit(config: &RunConfig, resume: Option<&Path>) -> anyhow::Result<()> {
    if let Some(dir) = resume {
        anyhow::bail!("{}: resuming is not there yet", dir.display());
    }
    let data = config.data.load(config.train.seed)?;
    let task = config.task(&data.train)?;
    let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
    let devices = &config.devices;
    let mut trainer = Trainer::new(task, config.options(), &adapters, devices.replicas, devices.memory_limit)?;
    let train: Arc<dyn Dataset> = Arc::new(data.train);
    let validation = data.validation.map(|data| Arc::new(data) as Arc<dyn Dataset>);
    let mut print = |progress: &Progress<'_>| {
        if let Progress::Epoch(epoch) = progress {
            let accuracy = epoch.validation.as_ref().and_then(|v| v.accuracy());
            let accuracy = accuracy.map(|a| format!("  held-out accuracy {:.2}%", 100.0 * a)).unwrap_or_default();
            println!(
                "epoch {}/{}  loss {:.4}{accuracy}  {:.0} samples/s",
                epoch.epoch + 1,
                epoch.epochs,
                epoch.train.loss(),
                epoch.samples_per_second
            );
        }
        Flow::Continue
    };
    trainer.fit(&train, validation.as_ref(), &mut print)?;
    Ok(())
}
