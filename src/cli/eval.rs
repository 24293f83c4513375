//! `everygpu eval`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use everygpu::config::Override;
use everygpu::gpu::Adapters;
use everygpu::train::{Split, TrainOptions, Trainer};

use super::run::{Which, open, same_classes};
use super::{Devices, path, terminal};

/// Measure a trained network on its held-out samples, or on other data
#[derive(Debug, Args)]
pub struct Eval {
    /// The run folder
    #[arg(value_name = "RUN_DIR", value_parser = path())]
    run: PathBuf,
    /// Other data of the run's format: a CSV file, a text, or a folder with MNIST's test files
    #[arg(long, value_name = "PATH", value_parser = path())]
    data: Option<PathBuf>,
    /// Which checkpoint to take
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
    /// Take the weights themselves, where the run kept a moving average of them (optimizer.ema_decay)
    #[arg(long)]
    raw: bool,
    /// Most bytes of a data file, decompressed, for example 8GiB; by default what the run file says (data.size_limit)
    #[arg(long, value_name = "SIZE")]
    size_limit: Option<String>,
    #[command(flatten)]
    devices: Devices,
}

impl Eval {
    fn overrides(&self) -> Vec<Override> {
        let limit = self.size_limit.iter().map(|v| Override::flag("--size-limit", "data.size_limit", v));
        self.devices.overrides().into_iter().chain(limit).collect()
    }

    pub fn run(self) -> anyhow::Result<()> {
        let run = open(&self.run, self.checkpoint, &self.overrides())?;
        let config = &run.config;
        let data = match &self.data {
            Some(path) => config.data.read_other(path, &run.card)?,
            None => {
                let loaded = config.data.load_as(config.train.seed, &config.model.loss, Some(&run.card))?;
                same_classes(&self.run, &run.card, &loaded.card)?;
                loaded.validation.context("the run has no held-out samples; give other data with --data")?
            }
        };
        let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
        let task = config.task(&run.card)?;
        // The training's weights need not be as many as there are devices now, and matter only to its speed.
        let options = TrainOptions { split: Split::Even, ..config.train.clone() };
        let trainer = Trainer::builder(task, options).adapters(&adapters).replicas(config.devices.replicas);
        let mut trainer = trainer.memory_limit(config.devices.memory_limit).start()?;
        trainer.load_weights(&run.snapshot, self.raw)?;
        let tally = trainer.evaluate(&data)?;
        let mut out = terminal::out();
        writeln!(out, "checkpoint: {}", run.checkpoint.display())?;
        writeln!(out, "samples: {}", data.len())?;
        writeln!(out, "loss: {:.6}", tally.loss())?;
        if let Some(accuracy) = tally.accuracy() {
            writeln!(out, "accuracy: {:.2}%", 100.0 * accuracy)?;
        }
        Ok(())
    }
}
