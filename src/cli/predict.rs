//! `everygpu predict`

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use everygpu::config::Override;
use everygpu::gpu::Adapters;
use everygpu::predict::{Predictor, on_first};
use everygpu::self_test::usable;
use everygpu::tensor::HostTensor;
use everygpu::train::saved_weights;
use serde_json::{Map, json};

use super::run::{Which, open};
use super::{Devices, path, terminal};

/// Predict for the samples in a file: class and probabilities, or the value
#[derive(Debug, Args)]
pub struct Predict {
    /// The run folder
    #[arg(value_name = "RUN_DIR", value_parser = path())]
    run: PathBuf,
    /// The samples, in the run's format; a label column, where there is one, is not used
    #[arg(long, value_name = "FILE", value_parser = path())]
    input: PathBuf,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
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

/// Format of the predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A header, then a line a sample
    Csv,
    /// A JSON object a sample
    Jsonl,
}

/// Rows that are run at once.
const ROWS: usize = 64;

impl Predict {
    fn overrides(&self) -> Vec<Override> {
        let limit = self.size_limit.iter().map(|v| Override::flag("--size-limit", "data.size_limit", v));
        self.devices.overrides().into_iter().chain(limit).collect()
    }

    pub fn run(self) -> anyhow::Result<()> {
        let run = open(&self.run, self.checkpoint, &self.overrides())?;
        let inputs = run.config.data.read_inputs(&self.input, &run.card)?;
        let (adapters, _) = usable(Adapters::discover()?.select(&run.config.devices.adapters)?)?;
        let (task, weights) = (run.config.task(&run.card)?, saved_weights(&run.snapshot, self.raw)?);
        let mut predictor = on_first(&adapters, |adapter| Predictor::new(adapter, &task, &weights, ROWS))?;
        let outputs = predictor.predict(&inputs)?;
        print(&outputs, run.classes(&task), self.format)
    }
}

/// Prints one line a sample: the likeliest class and all probabilities, or the values.
fn print(outputs: &HostTensor, classes: Option<&[String]>, format: Format) -> anyhow::Result<()> {
    let width = outputs.shape().dims()[1..].iter().product::<usize>().max(1);
    let values = outputs.as_f32().context("predictions are floats")?;
    let names: Vec<String> = match classes {
        Some(classes) => classes.to_vec(),
        None => (0..width).map(|i| format!("value_{i}")).collect(),
    };
    let rows = values.chunks(width).map(|row| (classes.map(|classes| &classes[first_maximum(row)]), row));
    let mut out = BufWriter::new(terminal::data());
    match format {
        Format::Csv => {
            let mut table = csv::Writer::from_writer(out);
            let class = classes.map(|_| "class");
            table.write_record(class.into_iter().chain(names.iter().map(String::as_str)))?;
            for (class, row) in rows {
                table.write_record(class.cloned().into_iter().chain(row.iter().map(f32::to_string)))?;
            }
            table.flush()?;
        }
        Format::Jsonl => {
            for (class, row) in rows {
                let line = match class {
                    Some(class) => {
                        let of: Map<_, _> = names.iter().cloned().zip(row.iter().map(|&p| json!(p))).collect();
                        json!({ "class": class, "probabilities": of })
                    }
                    None => json!({ "values": row }),
                };
                writeln!(out, "{line}")?;
            }
            out.flush()?;
        }
    }
    Ok(())
}

fn first_maximum(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, p)| if *p > row[best] { i } else { best })
}
