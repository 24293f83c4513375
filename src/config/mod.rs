//! The run file: a TOML file that says what to train, on what, how and where. `docs/run-file.md` describes every key.
//! Each mistake in it is reported with file, line, what was expected and, for an unknown key, the nearest known one.
//!
//! A setting is described once, in the place that its section has: its key, what it means, what it may be, and the
//! value in [`RunConfig`] that it is. Reading, [writing](RunConfig::to_toml), defaults and [the list of keys](keys) all
//! go by that.

mod blocks;
mod data;
mod devices;
mod edit;
mod effects;
mod fields;
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
mod sizes;
#[cfg(test)]
mod tests;
mod text;
mod train;
mod tree;
mod values;

use std::path::Path;
use std::sync::Arc;

pub use data::{DataConfig, IdxFiles, Scale, Source, Target, Validation};
pub use devices::{DevicesConfig, OutputConfig};
pub use edit::RunFile;
pub use layers::{LayerConfig, LayerSpec};
pub use load::LoadedData;
pub use model::ModelConfig;
pub use text::{TextSource, TokenizerKind};
pub use tree::Override;
pub use values::Key;

use crate::error::{Error, Result};
use crate::nn::{Loss, Sequential};
use crate::run::{CheckpointPolicy, DataCard};
use crate::tensor::TensorType;
use crate::train::{Task, TrainOptions};
use fields::Fields;
use places::Places;
use reader::Section;
use tree::Node;

/// The run file of `everygpu demo`.
const DEMO: &str = include_str!("../../examples/digits.toml");

/// A whole run file with defaults filled in.
///
/// ```
/// # use std::path::Path;
/// # use everygpu::config::{Override, RunConfig};
/// let text = "[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }]";
/// let config = RunConfig::parse(text, "run.toml", Path::new(""), &[Override::parse("train.epochs=3")?])?;
/// assert_eq!(config.train.epochs, 3);
/// # Ok::<(), everygpu::error::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RunConfig {
    /// Where samples come from.
    pub data: DataConfig,
    /// The network.
    pub model: ModelConfig,
    /// How it is trained: `[train]`, `[optimizer]`, `[schedule]`, and when a device is given up (`[devices]`).
    pub train: TrainOptions,
    /// When checkpoints are written and which are kept (`[train]`).
    pub checkpoints: CheckpointPolicy,
    /// What it is trained on.
    pub devices: DevicesConfig,
    /// Where the run's files go.
    pub output: OutputConfig,
    /// Where each key stands.
    places: Places,
}

/// What describes the fields of a section.
type Describe = fn(&mut RunConfig, &mut Fields<'_>);

/// The sections, in their order.
const SECTIONS: [(&str, Describe); 7] = [
    ("data", |config, f| config.data.fields(f)),
    ("model", |config, f| config.model.fields(config.data.regression(), f)),
    ("train", |config, f| train::fields(&mut config.train, &mut config.checkpoints, f)),
    ("optimizer", |config, f| optimizer::fields(&mut config.train, f)),
    ("schedule", |config, f| schedule::fields(&mut config.train.schedule, f)),
    ("devices", |config, f| config.devices.fields(&mut config.train.endurance, f)),
    ("output", |config, f| config.output.fields(f)),
];

/// Every key that a run file may have.
pub fn keys() -> Vec<Key> {
    let mut config = RunConfig::new(Places::default());
    SECTIONS.iter().flat_map(|(name, describe)| fields::keys(name, |f| describe(&mut config, f))).collect()
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

    /// All defaults, and a model without layers.
    fn new(places: Places) -> Self {
        Self {
            data: DataConfig::default(),
            model: ModelConfig { input: None, layers: Vec::new(), loss: Loss::cross_entropy() },
            train: TrainOptions::default(),
            checkpoints: CheckpointPolicy { every: 0, keep_last: 2, keep_best: 1 },
            devices: DevicesConfig::default(),
            output: OutputConfig { dir: "runs".into() },
            places,
        }
    }

    /// What the tree of a run file says.
    fn of(tree: Node) -> Result<Self> {
        let mut config = Self::new(Places::of(&tree));
        let mut root = Section::new("", tree)?;
        for (name, describe) in SECTIONS {
            let mut section = root.section(name)?;
            fields::fill(&mut section, |f| describe(&mut config, f))?;
            section.finish()?;
        }
        root.finish()?;
        if config.to_toml().len() > tree::MOST_BYTES {
            // The run's folder has it so.
            let message = format!("blocks written out take more than {} MiB; use a repeat", tree::MOST_BYTES >> 20);
            return Err(config.places.located(Error::invalid("model.layers", message)));
        }
        // What is wrong with several settings together.
        config.train.validate().map_err(|error| config.places.located(error))?;
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
        let mut config = self.clone();
        let section = |(name, describe): (&str, Describe)| {
            let entries = fields::entries(|f| describe(&mut config, f));
            let lines: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            format!("[{name}]\n{}", lines.concat())
        };
        SECTIONS.map(section).join("\n")
    }

    /// The network for samples of type `input` with targets of type `target`. See [`ModelConfig::build`].
    ///
    /// # Errors
    /// When it cannot work on them.
    pub fn model(&self, input: &TensorType, target: &TensorType, classes: Option<usize>) -> Result<Sequential> {
        self.model.build(input, target, classes)
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
}
