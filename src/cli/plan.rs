//! `everygpu plan`

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use everygpu::config::{RunConfig, Source};
use everygpu::gpu::Adapters;
use everygpu::kernel::Target;
use everygpu::nn::{self, Loss, Model};
use everygpu::optim::UpdatePlan;
use everygpu::plan::{self, Layout, Storage};
use everygpu::tensor::TensorType;
use everygpu::train::Task;

use super::{Settings, path, placed, terminal};

/// Print what a run will do on its first adapter: the graph, the dispatches, and the exact bytes it allocates. Nothing
/// is run, and no file written
#[derive(Debug, Args)]
pub struct Plan {
    /// The run file
    #[arg(value_name = "RUN.toml", value_parser = path())]
    run: PathBuf,
    /// Samples that the device runs at once; by default what it would choose for the whole batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    micro_batch: Option<u32>,
    #[command(flatten)]
    settings: Settings,
}

impl Plan {
    pub fn run(self) -> anyhow::Result<()> {
        let mut config = RunConfig::load(&self.run, &self.settings.overrides()?)?;
        if let Source::Text(text) = &mut config.data.source {
            // It would be written.
            text.cache = None;
        }
        self.print(&config).map_err(|error| placed(error, &config))
    }

    fn print(&self, config: &RunConfig) -> anyhow::Result<()> {
        let task = task(config)?;
        let (chosen, group) = (config.train.micro_batch, task.group()?);
        let rows = self.micro_batch.map_or_else(|| chosen.rows(config.train.batch, group), |n| n as usize);

        let graph = task.training(rows)?;
        let adapters = adapters(config);
        let targets: Vec<Target> = adapters.iter().map(|(target, _)| target.clone()).collect();
        let layout = Arc::new(Layout::shared(&graph, &targets)?);
        let able = adapters.into_iter().find(|(target, _)| layout.check_limits(target).is_ok());
        let (target, has_clock) = able.context("no adapter can hold the parameters")?;
        let devices = targets.len() * config.devices.replicas;
        let plan = plan::Plan::new(&graph, layout.clone(), &target)?;
        let update = UpdatePlan::new(&config.train.update_rule(), &layout, &target)?;
        let evaluation = plan::Plan::new(&task.evaluation(rows)?, layout.clone(), &target)?;
        let storage = Storage::new(&layout, task.statistics().len(), true, devices > 1)
            .compressed(config.train.gradient_compression)
            .timed(has_clock);
        let state = update.storage(&layout);

        let out = &mut terminal::out();
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
        let among = if devices > 1 { format!("leads {devices} devices") } else { "trains alone".to_owned() };
        writeln!(out, "\nbytes on {}, which {among}", target.adapter)?;
        for (what, footprint) in &footprints {
            write!(out, "\n{what}\n{footprint}")?;
        }
        let training: u64 = footprints[..3].iter().map(|(_, f)| f.bytes()).sum();
        writeln!(out, "\n{training:>14}  total for training")?;
        writeln!(out, "{:>14}  with evaluation", training + footprints[3].1.bytes())?;
        Ok(())
    }
}

/// The limits of the run's adapters, and whether they have clocks: no device has to be opened for that. Where the run
/// file's adapters are not at hand, limits that every adapter meets.
fn adapters(config: &RunConfig) -> Vec<(Target, bool)> {
    match Adapters::discover().and_then(|adapters| adapters.select(&config.devices.adapters)) {
        Ok(chosen) => chosen.iter().map(|adapter| (adapter.target(), adapter.has_clock())).collect(),
        Err(error) => {
            terminal::tell(format!("note: {error}; going by WebGPU's default limits"));
            vec![(Target::default(), false)]
        }
    }
}

/// The task of a run. The data set tells the shapes and the number of classes; where it is not at hand, the run file
/// does: for a text it has the length, else `model.input`.
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
    terminal::tell(format!("note: {error}; going by the run file"));
    let model = config.model(&input, &classes, None)?;
    let target = match &config.model.loss {
        Loss::CrossEntropy(_) => classes,
        loss => loss.target(&nn::output_shape(&model as &dyn Model)?),
    };
    Ok(Task { model: Arc::new(model), loss: config.model.loss.clone(), target })
}
