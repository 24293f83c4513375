//! `everygpu eval`

use std::path::PathBuf;

use clap::Args;

use super::Devices;

/// Measure a trained network on its held-out samples, or on other data
#[derive(Debug, Args)]
pub struct Eval {
    /// The run folder
    #[arg(value_name = "RUN_DIR")]
    run: PathBuf,
    /// Other data of the run's format: a CSV file, or a folder with MNIST's test files
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    #[command(flatten)]
    devices: Devices,
}

impl Eval {
    pub fn run(self) -> anyhow::Result<()> {
        anyhow::bail!("{}: eval is not there yet", self.run.display())
    }
}
