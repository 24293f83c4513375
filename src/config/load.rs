//! Reads the data that a run file names: files, the held-out part, scaling.

use std::path::Path;
use std::sync::Arc;

use super::data::{DataConfig, Scale, Source, Target, Validation};
use super::text::TextSource;
use crate::data::{self, Columns, CsvOptions, Dataset, Normalization, Normalizer, TensorDataset, Tokenizer, idx};
use crate::error::{Error, Result};
use crate::nn::Loss;
use crate::run::DataCard;
use crate::tensor::{HostTensor, Shape};

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
    /// Reads the data, holds out the validation part and scales both. `seed` decides which samples are held out; `loss`
    /// is what the targets are for.
    ///
    /// # Errors
    /// When a file cannot be used; the message says where. When a target's value is none that the loss takes.
    pub fn load(&self, seed: u64, loss: &Loss) -> Result<LoadedData> {
        self.load_as(seed, loss, None)
    }

    /// The same for a run that is there already and whose data `card` describes: columns are found by the names that
    /// they had, and classes keep their order, unless there are new ones: then the card that comes back has others.
    ///
    /// # Errors
    /// Like [`DataConfig::load`]; also when one of the card's columns is missing.
    pub fn load_as(&self, seed: u64, loss: &Loss, card: Option<&DataCard>) -> Result<LoadedData> {
        match &self.source {
            Source::Text(text) => self.load_text(text),
            _ => self.load_tensors(seed, loss, card),
        }
    }

    fn load_text(&self, source: &TextSource) -> Result<LoadedData> {
        let (all, tokenizer) = source.load(self.size_limit)?;
        let vocabulary = all.vocabulary();
        let (train, validation) = match &self.validation {
            Validation::Fraction { fraction, .. } => {
                let (train, held_out) = all.split(*fraction)?;
                (train, Some(held_out))
            }
            Validation::File(path) => (all, Some(source.load_other(path, &tokenizer, None, self.size_limit)?)),
            _ => (all, None),
        };
        Ok(LoadedData {
            card: DataCard::of_text(&train, tokenizer, vocabulary),
            train: Arc::new(train),
            validation: validation.map(|data| Arc::new(data) as _),
        })
    }

    fn load_tensors(&self, seed: u64, loss: &Loss, known: Option<&DataCard>) -> Result<LoadedData> {
        let (all, columns) = self.read_source(known)?;
        if self.target == Target::Label {
            // Here samples still have the numbers that they have in the file.
            loss.check_targets(all.targets(), None)?;
            check_pairs(loss, all.classes())?;
        }
        let classes = all.classes().map(<[String]>::to_vec);
        let classes = classes.as_deref();
        let all = self.border.apply(all)?;
        let held_out = |data: Result<TensorDataset>| data.and_then(|data| self.border.apply(data)).map(Some);
        let (train, validation) = match &self.validation {
            Validation::None => (all, None),
            Validation::Fraction { fraction, stratified } => {
                let (train, held_out) = data::split(&all, *fraction, seed, *stratified)?;
                (train, Some(held_out))
            }
            Validation::File(path) => {
                (all, held_out(self.read_csv(path, classes, columns.as_ref()).map(|(data, _)| data))?)
            }
            Validation::Idx(files) => {
                (all, held_out(idx::read_within(&files.images, &files.labels, classes, self.size_limit))?)
            }
            Validation::MnistTest => (all, held_out(self.read_mnist("t10k", classes))?),
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
        let card = DataCard { columns, ..DataCard::new(&train, self.border, &normalizer) };
        Ok(LoadedData { card, train: Arc::new(train), validation })
    }

    /// `data` as it was read, scaled and with the targets that are asked for.
    fn prepared(&self, normalizer: &Normalizer, data: TensorDataset) -> Result<TensorDataset> {
        let data = normalizer.apply(data)?;
        match self.target {
            Target::Label => Ok(data),
            Target::Input => data.reconstruction(),
        }
    }

    /// Reads another file of the same kind, in the form of the training's samples, which `card` describes: a CSV file,
    /// a text, or a folder laid out like MNIST whose test files are taken.
    ///
    /// # Errors
    /// When the file cannot be used, or this configuration's data has no such files.
    pub fn read_other(&self, path: &Path, card: &DataCard) -> Result<Arc<dyn Dataset>> {
        let classes = card.classes.as_deref();
        let raw = match &self.source {
            Source::Text(source) => {
                let tokenizer = card.tokenizer.as_ref().unwrap_or(&Tokenizer::Bytes);
                return Ok(Arc::new(source.load_other(path, tokenizer, None, self.size_limit)?));
            }
            Source::Csv { .. } | Source::Digits => data::read_csv(&CsvOptions {
                classes: classes.map(<[String]>::to_vec),
                ..self.csv_options_as(path, card)?
            })?,
            Source::Mnist { .. } | Source::Idx(_) => read_mnist(path, "t10k", classes, self.size_limit)?,
        };
        check_sample(path, raw.inputs(), &card.sample()?)?;
        Ok(Arc::new(self.prepared(&card.normalizer, card.border.apply(raw)?)?))
    }

    /// Samples without targets from a file in this data's format, in the form of the training's samples, which `card`
    /// describes: (N, ..card.input).
    ///
    /// # Errors
    /// When the file cannot be used, or its samples are not of the training's dimensions.
    pub fn read_inputs(&self, path: &Path, card: &DataCard) -> Result<HostTensor> {
        let sample = card.sample()?;
        let inputs = match &self.source {
            Source::Csv { .. } | Source::Digits => {
                data::read_csv_features(&self.csv_options_as(path, card)?, sample.elements())?
            }
            Source::Mnist { .. } | Source::Idx(_) => idx::read_images_within(path, self.size_limit)?,
            Source::Text(_) => {
                return Err(Error::data(
                    path,
                    "the run is a language model's: `everygpu generate` goes on from a prompt",
                ));
            }
        };
        check_sample(path, &inputs, &sample)?;
        card.normalizer.apply_inputs(card.border.apply_inputs(inputs)?)
    }

    /// How a CSV file of this data is read.
    pub fn csv_options(&self, path: &Path) -> CsvOptions {
        // What is taken off a column goes out again where each column gets a mean of 0.
        let by_column = match (self.scale, &self.source) {
            (Scale::Fitted(Normalization::Standardize), _) => true,
            (Scale::Fitted(Normalization::StandardizeChannels), Source::Csv { shape, .. }) => {
                shape.as_ref().is_none_or(|shape| shape.len() == 1)
            }
            _ => false,
        };
        let default = CsvOptions {
            offsets: by_column && self.border.is_none(),
            size_limit: self.size_limit,
            ..CsvOptions::new(path)
        };
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

    /// How a CSV file is read for a run that is there already and whose data `card` describes.
    fn csv_options_as(&self, path: &Path, card: &DataCard) -> Result<CsvOptions> {
        let sample_shape = Some(card.sample()?.dims().to_vec());
        let columns = Some(card.columns.clone().unwrap_or_default());
        Ok(CsvOptions { sample_shape, columns, ..self.csv_options(path) })
    }

    /// The training's samples as they are in their file, and its columns where it has any; `known` is the card of the
    /// run that they are read for once more.
    fn read_source(&self, known: Option<&DataCard>) -> Result<(TensorDataset, Option<Columns>)> {
        let (data, columns) = match &self.source {
            Source::Digits => (data::digits()?, None),
            Source::Csv { path, .. } => {
                // An older run has no names on its card: its columns are taken as they stand.
                let columns = known.map(|card| card.columns.clone().unwrap_or_default());
                let (data, columns) = self.read_csv(path, None, columns.as_ref())?;
                (data, Some(columns))
            }
            Source::Idx(files) => (idx::read_within(&files.images, &files.labels, None, self.size_limit)?, None),
            Source::Mnist { .. } => (self.read_mnist("train", None)?, None),
            Source::Text(TextSource { path, .. }) => return Err(Error::data(path, "a text is no table of samples")),
        };
        match known.and_then(|card| card.classes.as_deref()) {
            Some(classes) => Ok((data.with_classes(classes)?, columns)),
            None => Ok((data, columns)),
        }
    }

    fn read_csv(
        &self,
        path: &Path,
        classes: Option<&[String]>,
        columns: Option<&Columns>,
    ) -> Result<(TensorDataset, Columns)> {
        let classes = classes.map(<[String]>::to_vec);
        data::read_csv_columns(&CsvOptions { classes, columns: columns.cloned(), ..self.csv_options(path) })
    }

    fn read_mnist(&self, part: &str, classes: Option<&[String]>) -> Result<TensorDataset> {
        match &self.source {
            Source::Mnist { dir } => read_mnist(dir, part, classes, self.size_limit),
            _ => Err(Error::invalid("data.validation", "\"test\" goes with format = \"mnist\" only")),
        }
    }
}

/// Checks that the samples `inputs` from `path` have the shape that they had in training.
fn check_sample(path: &Path, inputs: &HostTensor, sample: &Shape) -> Result<()> {
    let got = Shape::from(&inputs.shape().dims()[1..]);
    match got == *sample {
        true => Ok(()),
        false => Err(Error::data(path, format!("expected samples of {sample}, got {got}"))),
    }
}

/// Checks that classes which say whether two vectors are to be apart or alike do so in this order.
fn check_pairs(loss: &Loss, classes: Option<&[String]>) -> Result<()> {
    let numbers = |classes: &[String]| classes.iter().map(|class| class.parse().ok()).collect::<Option<Vec<f64>>>();
    match (loss, classes) {
        (Loss::CosineEmbedding { .. }, Some(classes))
            if !matches!(numbers(classes).as_deref(), Some([-1.0 | 0.0, 1.0])) =>
        {
            let message = format!("expected the labels -1 and 1, or 0 and 1, got {}", classes.join(", "));
            Err(Error::invalid(format!("targets for {}", loss.name()), message))
        }
        _ => Ok(()),
    }
}

/// Reads a part's images and labels from a folder, called as MNIST's own files are (`PART-images-idx3-ubyte`) or as
/// copies of them often are (`PART-images.idx3-ubyte`), plain or `.gz`.
fn read_mnist(dir: &Path, part: &str, classes: Option<&[String]>, limit: u64) -> Result<TensorDataset> {
    let find = |what: &str, kind: &str| {
        let names = ["-", "."].map(|dot| format!("{part}-{what}{dot}{kind}-ubyte"));
        let files = names.iter().flat_map(|name| [dir.join(name), dir.join(format!("{name}.gz"))]);
        let missing = || {
            let message = format!("there is no such file, and no {} either; each may also end in .gz", names[1]);
            Error::data(dir.join(&names[0]), message)
        };
        files.into_iter().find(|file| file.exists()).ok_or_else(missing)
    };
    idx::read_within(&find("images", "idx3")?, &find("labels", "idx1")?, classes, limit)
}
