//! `everygpu plan`

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use everygpu::config::{Override, RunConfig, Source};
use everygpu::nn::{self, Loss, Model};
use everygpu::op::Target;
use everygpu::optim::UpdatePlan;
use everygpu::plan::{self, Layout, Storage};
use everygpu::tensor::TensorType;
use everygpu::train::Task;

use super::{path, placed};

/// Print what a run will do on a device: the graph, the dispatches, and the exact bytes it allocates. No device is touched
#[derive(Debug, Args)]
pub struct Plan {
    /// The run file
    #[arg(value_name = "RUN.toml", value_parser = path())]
    run: PathBuf,
    /// Samples that the device runs at once; by default what it would choose for the whole batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    micro_batch: Option<u32>,
    /// Use this value instead of the run file's; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Plan {
    pub fn run(self) -> anyhow::Result<()> {
        let overrides = self.set.iter().map(|s| Override::parse(s)).collect::<Result<Vec<_>, _>>()?;
        let config = RunConfig::load(&self.run, &overrides)?;
        self.print(&config).map_err(|error| placed(error, &config))
    }

    fn print(&self, config: &RunConfig) -> anyhow::Result<()> {
        let task = task(config)?;
        let (chosen, group) = (config.train.micro_batch, task.group()?);
        let rows = self.micro_batch.map_or_else(|| chosen.rows(config.train.batch, group), |n| n as usize);

        let target = Target::default();
        let graph = task.training(rows)?;
        let layout = Arc::new(Layout::new(&graph, &target)?);
        let plan = plan::Plan::new(&graph, layout.clone(), &target)?;
        let update = UpdatePlan::new(&config.options().update_rule(), &layout, &target)?;
        let evaluation = plan::Plan::new(&task.evaluation(rows)?, layout.clone(), &target)?;
        let storage = Storage::new(&layout, task.statistics().len(), true, false);
        let state = Storage::for_update(&layout, update.moments.len(), update.partials);

        let out = &mut std::io::stdout().lock();
        writeln!(out, "graph for a micro-batch of {rows}\n\n{graph}")?;
        writeln!(out, "{} dispatches a micro-batch\n\n{plan}", plan.dispatches.len())?;
        writeln!(out, "{} dispatches an update", update.dispatches.len())?;
        writeln!(out, "\nparameters by bucket and offset\n")?;
        for (bucket, bytes) in layout.buckets().iter().enumerate() {
            writeln!(out, "bucket {bucket}: {bytes} bytes")?;
            let mut placed: Vec<_> = layout.parameters().iter().filter(|p| p.bucket == bucket).collect();
            placed.sort_by_key(|p| p.offset);
            for parameter in placed {
                writeln!(out, "{:>14}  {} {}", parameter.offset, parameter.name, parameter.shape)?;
            }
        }
        let footprints = [
            ("weights and gradients", storage.footprint()),
            ("a micro-batch (slots, inputs, transfers)", plan.footprint()),
            ("optimizer", state.footprint()),
            ("evaluation, from its first use on", evaluation.footprint()),
        ];
        writeln!(out, "\nbytes on one device that trains alone, with WebGPU's default limits")?;
        for (what, footprint) in &footprints {
            write!(out, "\n{what}\n{footprint}")?;
        }
        let training: u64 = footprints[..3].iter().map(|(_, f)| f.bytes()).sum();
        writeln!(out, "\n{training:>14}  total for training")?;
        writeln!(out, "{:>14}  with evaluation", training + footprints[3].1.bytes())?;
        Ok(())
    }
}

/// The task of a run. The data set tells the shapes and the number of classes; where it is not at hand, the run file does: for
/// a text it has the length, else `model.input`.
fn task(config: &RunConfig) -> anyhow::Result<Task> {
    let error = match config.data.load(config.train.seed, &config.model.loss) {
        Ok(data) => return Ok(config.task(&data.card)?),
        Err(error) => error,
    };
    let (input, classes) = match (&config.data.source, &config.model.input) {
        (Source::Text(text), _) => (TensorType::u32([text.length]), TensorType::u32([text.length])),
        (_, Some(shape)) => (TensorType::f32(shape.clone()), TensorType::u32([])),
        (_, None) => {
            return Err(error).context("the data set tells the shape of a sample; without it, set model.input");
        }
    };
    eprintln!("note: {error}; going by the run file");
    let model = config.model(&input, &classes, None)?;
    let target = match &config.model.loss {
        Loss::CrossEntropy(_) => classes,
        loss => loss.target(&nn::output_shape(&model as &dyn Model)?),
    };
    Ok(Task { model: Arc::new(model), loss: config.model.loss.clone(), target })
}
