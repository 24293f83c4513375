//! `everygpu export`

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::{NameMap, write_weights};

use super::run::{Which, open};
use super::{Devices, say};

/// Write a run's weights for other programs: a safetensors file with PyTorch's names and layouts
#[derive(Debug, Args)]
pub struct Export {
    /// The run folder
    #[arg(value_name = "RUN_DIR")]
    run: PathBuf,
    /// The file to write: a .safetensors file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What is called FROM here is called TO in the file, for example linear_1=0; may be repeated
    #[arg(long = "map", value_name = "FROM=TO")]
    map: Vec<String>,
    /// Which checkpoint to take
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
}

impl Export {
    pub fn run(self) -> anyhow::Result<()> {
        let mut map = NameMap::default();
        self.map.iter().try_for_each(|rule| map.rule(rule)).context("--map")?;
        let run = open(&self.run, self.checkpoint, &Devices::default())?;
        anyhow::ensure!(
            self.file.extension().is_some_and(|extension| extension == "safetensors"),
            "{}: expected a file name that ends in .safetensors",
            self.file.display()
        );
        let count = write_weights(&self.file, &run.snapshot.weights, &map)?;
        say(format!("{}: {count} tensors of {}", self.file.display(), run.checkpoint.display()));
        Ok(())
    }
}
