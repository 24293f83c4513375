//! `everygpu export`

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use everygpu::checkpoint::{NameMap, check_writable, write_atomic, write_weights};
use everygpu::tensor::{HostTensor, Named};
use everygpu::train::saved_weights;

use super::run::{Which, open};
use super::{path, say};

/// Write a run's model for other programs: its weights as a safetensors file with PyTorch's names and layouts, or all
/// of it as an ONNX model for inference
#[derive(Debug, Args)]
pub struct Export {
    /// The run folder
    #[arg(value_name = "RUN_DIR", value_parser = path())]
    run: PathBuf,
    /// The file to write: a .safetensors or .onnx file
    #[arg(value_name = "FILE", value_parser = path())]
    file: PathBuf,
    /// What is called FROM here is called TO in a .safetensors file, for example linear_1=0; may be repeated
    #[arg(long = "map", value_name = "FROM=TO")]
    map: Vec<String>,
    /// Which checkpoint to take
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
    /// Take the weights themselves, where the run kept a moving average of them (optimizer.ema_decay)
    #[arg(long)]
    raw: bool,
}

impl Export {
    pub fn run(self) -> anyhow::Result<()> {
        let write = match self.file.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => Self::weights,
            Some("onnx") => Self::model,
            _ => {
                let file = self.file.display();
                anyhow::bail!("{file}: expected a file name that ends in .safetensors or .onnx")
            }
        };
        check_writable(&self.file)?;
        write(&self)
    }

    fn weights(&self) -> anyhow::Result<()> {
        let mut map = NameMap::default();
        self.map.iter().try_for_each(|rule| map.rule(rule)).context("--map")?;
        let run = open(&self.run, self.checkpoint, &[])?;
        let mut weights = Named::default();
        for (name, values) in saved_weights(&run.snapshot, self.raw)? {
            let parameter = run.snapshot.weights.get(&name);
            let shape = parameter.with_context(|| format!("{name}: there is no such parameter"))?.shape().clone();
            weights.extend([(name, HostTensor::f32(shape, values)?)])?;
        }
        let count = write_weights(&self.file, &weights, &map)?;
        say(format!("{}: {count} tensors of {}", self.file.display(), run.checkpoint.display()));
        Ok(())
    }

    fn model(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.map.is_empty(), "--map: an ONNX model has no names that PyTorch would know; leave it out");
        let run = open(&self.run, self.checkpoint, &[])?;
        anyhow::ensure!(
            run.card.columns.as_ref().is_none_or(|columns| columns.offsets.is_empty()),
            "{}: the values of some columns are such that float32 cannot tell them apart, so a constant was taken off them \
             first; an ONNX model, whose inputs are float32, cannot do that. Take it off in the file, and train on that",
            self.run.display()
        );
        let task = run.config.task(&run.card)?;
        let mut model = task.onnx(run.card.border, &run.card.normalizer, &saved_weights(&run.snapshot, self.raw)?)?;
        if let Some(classes) = run.classes(&task) {
            model.describe("classes", &serde_json::to_string(classes)?);
        }
        write_atomic(&self.file, &model.encode()?)?;
        let samples = run.card.border.inside(&task.model.input().shape)?;
        let (dtype, checkpoint) = (task.model.input().dtype, run.checkpoint.display());
        let file = self.file.display();
        say(format!("{file}: the model of {checkpoint}, for any number of samples of {dtype}{samples}"));
        Ok(())
    }
}
