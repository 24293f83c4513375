//! Reads the data that a run file names: files, the held-out part, scaling.

use std::path::Path;
use std::sync::Arc;

use super::data::{DataConfig, Scale, Source, Target, Validation};
use super::text::TextSource;
use crate::data::{self, CsvOptions, Dataset, Normalizer, TensorDataset, Tokenizer};
use crate::error::{Error, Result};
use crate::nn::Loss;
use crate::tensor::{HostTensor, Shape};
use crate::train::DataCard;

/// Training data, ready to use.
#[derive(Clone)]
pub struct LoadedData {
    /// What is trained on.
    pub train: Arc<dyn Dataset>,
    /// What is held out.
    pub validation: Option<Arc<dyn Dataset>>,
    /// What the samples are, and how any other is to be brought into their form.
    pub card: DataCard,
}

impl std::fmt::Debug for LoadedData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held_out = self.validation.as_ref().map(|data| data.len());
        write!(f, "LoadedData {{ train: {}, validation: {held_out:?}, card: {:?} }}", self.train.len(), self.card)
    }
}

impl DataConfig {
    /// Reads the data, holds out the validation part and scales both. `seed` decides which samples are held out; `loss` is what
    /// the targets are for.
    ///
    /// # Errors
    /// When a file cannot be used; the message says where. When a target's value is none that the loss takes.
    pub fn load(&self, seed: u64, loss: &Loss) -> Result<LoadedData> {
        match &self.source {
            Source::Text(text) => self.load_text(text),
            _ => self.load_tensors(seed, loss),
        }
    }

    fn load_text(&self, source: &TextSource) -> Result<LoadedData> {
        let (all, tokenizer) = source.load()?;
        let vocabulary = all.vocabulary();
        let (train, validation) = match &self.validation {
            Validation::Fraction { fraction, .. } => {
                let (train, held_out) = all.split(*fraction)?;
                (train, Some(held_out))
            }
            Validation::File(path) => (all, Some(source.load_other(path, &tokenizer, None)?)),
            _ => (all, None),
        };
        Ok(LoadedData {
            card: DataCard::of_text(&train, tokenizer, vocabulary),
            train: Arc::new(train),
            validation: validation.map(|data| Arc::new(data) as _),
        })
    }

    fn load_tensors(&self, seed: u64, loss: &Loss) -> Result<LoadedData> {
        let all = self.read_source()?;
        if self.target == Target::Label {
            // Here samples still have the numbers that they have in the file.
            loss.check_targets(all.targets(), None)?;
            check_pairs(loss, all.classes())?;
        }
        let classes = all.classes().map(<[String]>::to_vec);
        let all = self.border.apply(all)?;
        let held_out = |data: Result<TensorDataset>| data.and_then(|data| self.border.apply(data)).map(Some);
        let (train, validation) = match &self.validation {
            Validation::None => (all, None),
            Validation::Fraction { fraction, stratified } => {
                let (train, held_out) = data::split(&all, *fraction, seed, *stratified)?;
                (train, Some(held_out))
            }
            Validation::File(path) => (all, held_out(self.read_csv(path, classes.as_deref()))?),
            Validation::Idx(files) => {
                (all, held_out(data::read_idx(&files.images, &files.labels, classes.as_deref()))?)
            }
            Validation::MnistTest => (all, held_out(self.read_mnist("t10k", classes.as_deref()))?),
        };
        let normalizer = match self.scale {
            Scale::Fitted(setting) => Normalizer::fit(setting, &train)?,
            Scale::Factor(factor) => Normalizer::Scale { factor },
        };
        let validation = match validation {
            Some(data) if data.input_type() != train.input_type() => {
                let (expected, given) = (train.input_type(), data.input_type());
                let message = format!("expected samples of {expected} as in training, got {given}");
                return Err(Error::invalid("data.validation", message));
            }
            Some(data) => Some(Arc::new(self.prepared(&normalizer, data)?) as _),
            None => None,
        };
        let train = self.prepared(&normalizer, train)?;
        Ok(LoadedData { card: DataCard::new(&train, self.border, &normalizer), train: Arc::new(train), validation })
    }

    /// `data` as it was read, scaled and with the targets that are asked for.
    fn prepared(&self, normalizer: &Normalizer, data: TensorDataset) -> Result<TensorDataset> {
        let data = normalizer.apply(data)?;
        match self.target {
            Target::Label => Ok(data),
            Target::Input => data.reconstruction(),
        }
    }

    /// Reads another file of the same kind, in the form of the training's samples, which `card` describes: a CSV file, a
    /// text, or a folder laid out like MNIST whose test files are taken.
    ///
    /// # Errors
    /// When the file cannot be used, or this configuration's data has no such files.
    pub fn read_other(&self, path: &Path, card: &DataCard) -> Result<Arc<dyn Dataset>> {
        let classes = card.classes.as_deref();
        let raw = match &self.source {
            Source::Text(source) => {
                let tokenizer = card.tokenizer.as_ref().unwrap_or(&Tokenizer::Bytes);
                return Ok(Arc::new(source.load_other(path, tokenizer, None)?));
            }
            Source::Csv { .. } | Source::Digits => self.read_csv(path, classes)?,
            Source::Mnist { .. } | Source::Idx(_) => read_mnist(path, "t10k", classes)?,
        };
        Ok(Arc::new(self.prepared(&card.normalizer, card.border.apply(raw)?)?))
    }

    /// Samples without targets from a file in this data's format, in the form of the training's samples, which `card`
    /// describes: (N, ..card.input).
    ///
    /// # Errors
    /// When the file cannot be used, or its samples are not of the training's dimensions.
    pub fn read_inputs(&self, path: &Path, card: &DataCard) -> Result<HostTensor> {
        let sample = card.border.inside(&Shape::from(card.input.as_slice()))?;
        let inputs = match &self.source {
            Source::Csv { .. } | Source::Digits => {
                let options = CsvOptions { sample_shape: Some(sample.dims().to_vec()), ..self.csv_options(path) };
                data::read_csv_features(&options, sample.elements())?
            }
            Source::Mnist { .. } | Source::Idx(_) => data::read_idx_images(path)?,
            Source::Text(_) => {
                return Err(Error::data(
                    path,
                    "the run is a language model's: `everygpu generate` goes on from a prompt",
                ));
            }
        };
        let got = Shape::from(&inputs.shape().dims()[1..]);
        if got != sample {
            return Err(Error::data(path, format!("expected samples of {sample}, got {got}")));
        }
        card.normalizer.apply_inputs(card.border.apply_inputs(inputs)?)
    }

    /// How a CSV file of this data is read.
    pub fn csv_options(&self, path: &Path) -> CsvOptions {
        let default = CsvOptions::new(path);
        match &self.source {
            Source::Csv { label, header, delimiter, shape, regression, .. } => CsvOptions {
                label: label.clone(),
                header: *header,
                delimiter: *delimiter as u8,
                sample_shape: shape.clone(),
                regression: *regression,
                ..default
            },
            Source::Digits => CsvOptions { header: false, sample_shape: Some(vec![1, 8, 8]), ..default },
            Source::Idx(_) | Source::Mnist { .. } | Source::Text(_) => CsvOptions { header: false, ..default },
        }
    }

    fn read_source(&self) -> Result<TensorDataset> {
        match &self.source {
            Source::Digits => data::digits(),
            Source::Csv { path, .. } => self.read_csv(path, None),
            Source::Idx(files) => data::read_idx(&files.images, &files.labels, None),
            Source::Mnist { .. } => self.read_mnist("train", None),
            Source::Text(TextSource { path, .. }) => Err(Error::data(path, "a text is no table of samples")),
        }
    }

    fn read_csv(&self, path: &Path, classes: Option<&[String]>) -> Result<TensorDataset> {
        data::read_csv(&CsvOptions { classes: classes.map(<[String]>::to_vec), ..self.csv_options(path) })
    }

    fn read_mnist(&self, part: &str, classes: Option<&[String]>) -> Result<TensorDataset> {
        match &self.source {
            Source::Mnist { dir } => read_mnist(dir, part, classes),
            _ => Err(Error::invalid("data.validation", "\"test\" goes with format = \"mnist\" only")),
        }
    }
}

/// Checks that classes which say whether two vectors are to be apart or alike do so in this order.
fn check_pairs(loss: &Loss, classes: Option<&[String]>) -> Result<()> {
    match (loss, classes) {
        (Loss::CosineEmbedding { .. }, Some(classes)) if !["-1", "0"].iter().any(|apart| *classes == [*apart, "1"]) => {
            let message = format!("expected the labels -1 and 1, or 0 and 1, got {}", classes.join(", "));
            Err(Error::invalid(format!("targets for {}", loss.name()), message))
        }
        _ => Ok(()),
    }
}

/// Reads `PART-images-idx3-ubyte` and `PART-labels-idx1-ubyte`, plain or `.gz`, from a folder.
fn read_mnist(dir: &Path, part: &str, classes: Option<&[String]>) -> Result<TensorDataset> {
    let find = |what: &str| {
        let plain = dir.join(format!("{part}-{what}-ubyte"));
        let packed = dir.join(format!("{part}-{what}-ubyte.gz"));
        if packed.exists() && !plain.exists() { packed } else { plain }
    };
    data::read_idx(&find("images-idx3"), &find("labels-idx1"), classes)
}
