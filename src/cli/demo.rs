//! `everygpu demo`

use clap::Args;
use everygpu::config::RunConfig;

use super::train::{Start, Trace, fit};
use super::{Settings, placed};

/// Train the built-in example: handwritten digits, on every adapter found
#[derive(Debug, Args)]
pub struct Demo {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    trace: Trace,
}

impl Demo {
    pub fn run(self) -> anyhow::Result<()> {
        let config = RunConfig::default_demo(&self.settings.overrides()?)?;
        self.trace.around(|| fit(&config, "digits", None, &Start::default())).map_err(|error| placed(error, &config))
    }
}
