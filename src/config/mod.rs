//! The run file: a TOML file that says what to train, on what, how and where. `docs/run-file.md` describes every key. Each
//! mistake in it is reported with file, line, what was expected and, for an unknown key, the nearest known one.
//!
//! The key of a setting stands in one place, where it is read; [`RunConfig::to_toml`] writes all of them out again.

mod blocks;
mod data;
mod devices;
mod edit;
mod effects;
mod image_layers;
mod init;
mod layers;
mod load;
mod loss;
mod model;
mod optimizer;
mod places;
mod reader;
mod schedule;
mod sequence_layers;
#[cfg(test)]
mod tests;
mod text;
mod train;
mod tree;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use data::{DataConfig, IdxFiles, Scale, Source, Target, Validation};
pub use devices::{DevicesConfig, OutputConfig};
pub use edit::RunFile;
pub use layers::{LayerConfig, LayerSpec};
pub use load::LoadedData;
pub use model::ModelConfig;
pub use optimizer::OptimizerConfig;
pub use schedule::ScheduleConfig;
pub use text::{TextSource, TokenizerKind};
pub use train::TrainConfig;
pub use tree::Override;

use crate::error::{Error, Result};
use crate::nn::Sequential;
use crate::optim::{Optimizer, Schedule};
use crate::run::{CheckpointPolicy, DataCard};
use crate::tensor::TensorType;
use crate::train::{Endurance, Task, TrainOptions};
use places::Places;
use reader::Section;
use tree::Node;

/// The run file of `everygpu demo`.
const DEMO: &str = include_str!("../../examples/digits.toml");

/// A whole run file with defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct RunConfig {
    /// Where samples come from.
    pub data: DataConfig,
    /// The network.
    pub model: ModelConfig,
    /// How it is trained.
    pub train: TrainConfig,
    /// Update rule and learning rate.
    pub optimizer: OptimizerConfig,
    /// How the learning rate changes.
    pub schedule: ScheduleConfig,
    /// What it is trained on.
    pub devices: DevicesConfig,
    /// Where the run's files go.
    pub output: OutputConfig,
    /// Where each key stands.
    places: Places,
}

impl RunConfig {
    /// Reads the run file at `path`; `overrides` take the place of what it says, in their order.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Config`] when something in it cannot be used.
    pub fn load(path: &Path, overrides: &[Override]) -> Result<Self> {
        RunFile::read(path)?.config(overrides)
    }

    /// The same for a run file's text, which stands in `file`; relative paths in it are relative to `base`.
    ///
    /// # Errors
    /// [`Error::Config`] when something in it cannot be used.
    pub fn parse(text: &str, file: &str, base: &Path, overrides: &[Override]) -> Result<Self> {
        Self::of(tree::merged(text, file, base, overrides)?)
    }

    /// What the tree of a run file says.
    fn of(tree: Node) -> Result<Self> {
        let places = Places::of(&tree);
        let mut root = Section::new("", tree)?;
        let data = DataConfig::read(root.section("data")?)?;
        let config = Self {
            model: ModelConfig::read(root.section("model")?, data.regression())?,
            data,
            train: TrainConfig::read(root.section("train")?)?,
            optimizer: OptimizerConfig::read(root.section("optimizer")?)?,
            schedule: ScheduleConfig::read(root.section("schedule")?)?,
            devices: DevicesConfig::read(root.section("devices")?)?,
            output: OutputConfig::read(root.section("output")?)?,
            places,
        };
        root.finish()?;
        if config.to_toml().len() > tree::MOST_BYTES {
            // The run's folder has it so.
            let message = format!("blocks written out take more than {} MiB; use a repeat", tree::MOST_BYTES >> 20);
            return Err(config.places.located(Error::invalid("model.layers", message)));
        }
        // What is wrong with several settings together.
        config.options().validate().map_err(|error| config.places.located(error))?;
        Ok(config)
    }

    /// The built-in example: handwritten digits, `examples/digits.toml`.
    ///
    /// # Errors
    /// When an override cannot be used.
    pub fn default_demo(overrides: &[Override]) -> Result<Self> {
        Self::parse(DEMO, "examples/digits.toml", Path::new(""), overrides)
    }

    /// The whole configuration as a run file, every key written out and paths absolute; read again it gives the same.
    pub fn to_toml(&self) -> String {
        let sections = [
            ("data", self.data.write()),
            ("model", self.model.write()),
            ("train", self.train.write()),
            ("optimizer", self.optimizer.write()),
            ("schedule", self.schedule.write()),
            ("devices", self.devices.write()),
            ("output", self.output.write()),
        ];
        let section = |(name, entries): (&str, Vec<(&str, String)>)| {
            let lines: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            format!("[{name}]\n{}", lines.concat())
        };
        sections.map(section).join("\n")
    }

    /// The network for samples of type `input` with targets of type `target`. See [`ModelConfig::build`].
    ///
    /// # Errors
    /// When it cannot work on them.
    pub fn model(&self, input: &TensorType, target: &TensorType, classes: Option<usize>) -> Result<Sequential> {
        self.model.build(input, target, classes)
    }

    /// The update rule.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer.rule
    }

    /// The learning rate by step.
    pub fn schedule(&self) -> Schedule {
        self.schedule.schedule(self.optimizer.lr)
    }

    /// Model, loss and target for samples as `card` describes them.
    ///
    /// # Errors
    /// When the model cannot work on them.
    pub fn task(&self, card: &DataCard) -> Result<Task> {
        let target = card.target_type();
        let model = self.model(&card.input_type(), &target, card.vocabulary())?;
        Ok(Task { model: Arc::new(model), loss: self.model.loss.clone(), target })
    }

    /// The trainer's settings.
    pub fn options(&self) -> TrainOptions {
        let train = &self.train;
        TrainOptions {
            epochs: train.epochs,
            batch: train.batch,
            accumulate: train.accumulate,
            micro_batch: train.micro_batch,
            seed: train.seed,
            clip_norm: train.clip_norm,
            shuffle: train.shuffle,
            drop_last: train.drop_last,
            split: train.split.clone(),
            deterministic: train.deterministic,
            gradient_compression: train.gradient_compression,
            nonfinite_limit: train.nonfinite_limit,
            loss_spike: train.loss_spike,
            verify_weights_every: train.verify_weights_every,
            snapshot_every: train.snapshot_every,
            cross_check_every: train.cross_check_every,
            endurance: Endurance {
                hang_timeout: self.devices.hang_timeout.map(Duration::from_secs_f64),
                compile_timeout: self.devices.compile_timeout.map(Duration::from_secs_f64),
                rejoin_after: self.devices.rejoin_after,
            },
            optimizer: self.optimizer(),
            groups: self.optimizer.groups.clone(),
            ema_decay: self.optimizer.ema_decay,
            schedule: self.schedule(),
        }
    }

    /// When checkpoints are written and which are kept.
    pub fn policy(&self) -> CheckpointPolicy {
        let &TrainConfig { checkpoint_every: every, keep_last, keep_best, .. } = &self.train;
        CheckpointPolicy { every, keep_last, keep_best }
    }
}
