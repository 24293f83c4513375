//! `everygpu demo`

use clap::Args;
use everygpu::config::RunConfig;

use super::Settings;
use super::train::fit;

/// Train the built-in example: handwritten digits, on every adapter found
#[derive(Debug, Args)]
pub struct Demo {
    #[command(flatten)]
    settings: Settings,
}

impl Demo {
    pub fn run(self) -> anyhow::Result<()> {
        fit(&RunConfig::default_demo(&self.settings.overrides()?)?, "digits", None)
    }
}
