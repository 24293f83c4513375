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
        let (train, validation) = match &self.validation {
            Validation::None => (all, None),
            Validation::Fraction { fraction, stratified } => {
                let (train, held_out) = data::split(&all, *fraction, seed, *stratified)?;
                (train, Some(held_out))
            }
            Validation::File(path) => (all, Some(self.read_csv(path, classes.as_deref())?)),
            Validation::Idx(files) => (all, Some(data::read_idx(&files.images, &files.labels, classes.as_deref())?)),
            Validation::MnistTest => (all, Some(self.read_mnist("t10k", classes.as_deref())?)),
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
        Ok(LoadedData { card: DataCard::new(&train, &normalizer), train: Arc::new(train), validation })
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
        Ok(Arc::new(self.prepared(&card.normalizer, raw)?))
    }

    /// Samples without targets from a file in this data's format, as raw values (N, ..sample).
    ///
    /// # Errors
    /// When the file cannot be used, or its samples are not of these dimensions.
    pub fn read_inputs(&self, path: &Path, sample: &[usize]) -> Result<HostTensor> {
        let inputs = match &self.source {
            Source::Csv { .. } | Source::Digits => {
                let options = CsvOptions { sample_shape: Some(sample.to_vec()), ..self.csv_options(path) };
                data::read_csv_features(&options, sample.iter().product())?
            }
            Source::Mnist { .. } | Source::Idx(_) => data::read_idx_images(path)?,
            Source::Text(_) => {
                return Err(Error::data(
                    path,
                    "the run is a language model's: `everygpu generate` goes on from a prompt",
                ));
            }
        };
        let dims = inputs.shape().dims();
        if dims[1..] != *sample {
            let (expected, got) = (Shape::from(sample), Shape::from(&dims[1..]));
            return Err(Error::data(path, format!("expected samples of {expected}, got {got}")));
        }
        Ok(inputs)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::RunConfig;

    fn load(dir: &Path, data: &str) -> Result<LoadedData> {
        let text = format!("[data]\n{data}\n[model]\nlayers = [{{ kind = \"linear\", out = 2 }}]\n");
        RunConfig::parse(&text, "run.toml", dir, &[])?.data.load(0, &Loss::cross_entropy())
    }

    #[test]
    fn a_validation_file_has_the_classes_and_the_scale_of_training() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.csv"), "x;kind\n1;no\n3;yes\n5;yes\n").unwrap();
        fs::write(dir.path().join("b.csv"), "x;kind\n5;yes\n").unwrap();
        let keys = "format = \"csv\"\npath = \"a.csv\"\ndelimiter = \";\"\nlabel = \"kind\"\nscale = \"standardize\"\n";
        let loaded = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap();
        let validation = loaded.validation.unwrap().gather(&[0]).unwrap();
        assert_eq!(validation.targets.as_u32().unwrap(), [1]);
        assert!((validation.inputs.as_f32().unwrap()[0] - 1.224_745).abs() < 1e-5);
        assert!(load(dir.path(), &format!("{keys}validation = \"none\"")).unwrap().validation.is_none());

        fs::write(dir.path().join("b.csv"), "x;kind\n5;maybe\n").unwrap();
        let error = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap_err().to_string();
        assert!(error.contains("b.csv:2: column 2: "), "{error}");
        fs::write(dir.path().join("b.csv"), "x;y;kind\n5;5;yes\n").unwrap();
        let error = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap_err().to_string();
        assert_eq!(error, "data.validation: expected samples of f32[1] as in training, got f32[2]");
    }

    #[test]
    fn targets_that_the_loss_has_no_meaning_for_are_named_by_the_files_sample() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.csv"), "x,y\n1,0\n2,1\n3,1\n4,2\n5,1\n").unwrap();
        let load = |loss: &str, data: &str| {
            let text = format!(
                "[data]\nformat = \"csv\"\npath = \"a.csv\"\n{data}\n[model]\nlayers = [{{ kind = \"linear\", out = 1 }}]\n\
                 loss = \"{loss}\"\n"
            );
            let config = RunConfig::parse(&text, "run.toml", dir.path(), &[]).unwrap();
            let loaded = config.data.load(3, &config.model.loss)?;
            let task = config.task(&loaded.card)?;
            task.training(1)?;
            task.check(loaded.train.as_ref())
        };
        let message = |loss: &str, data: &str| load(loss, data).unwrap_err().to_string();
        assert!(load("mse", "regression = true").is_ok());
        assert_eq!(
            message("bce", "regression = true"),
            "targets for bce: sample 3 (from 0) has the target 2, expected a number from 0 to 1"
        );
        assert!(
            message("kl", "regression = true")
                .starts_with("targets for kl: sample 0 (from 0) has targets of sum 0.0000")
        );
        assert!(message("cross-entropy", "regression = true").contains("for numbers take mse"));
        // What the inputs become is known after they are scaled.
        assert!(load("bce", "target = \"input\"\nscale = \"max\"\nvalidation = \"none\"").is_ok());
        assert_eq!(
            message("bce", "target = \"input\"\nvalidation = \"none\""),
            "targets for bce: sample 1 (from 0) has the target 2, expected a number from 0 to 1"
        );
    }

    #[test]
    fn labels_of_pairs_are_apart_and_alike_in_this_order() {
        let dir = tempfile::tempdir().unwrap();
        let load = |labels: [&str; 3], regression: bool| {
            let rows: String = labels.iter().map(|label| format!("1,2,3,4,{label}\n")).collect();
            fs::write(dir.path().join("a.csv"), format!("a,b,c,d,y\n{rows}")).unwrap();
            let text = format!(
                "[data]\nformat = \"csv\"\npath = \"a.csv\"\nshape = [2, 2]\nregression = {regression}\n[model]\n\
                 layers = [{{ kind = \"linear\", out = 3 }}]\nloss = \"cosine-embedding\"\n"
            );
            let config = RunConfig::parse(&text, "run.toml", dir.path(), &[]).unwrap();
            let loaded = config.data.load(3, &config.model.loss)?;
            let task = config.task(&loaded.card)?;
            task.training(1)?;
            task.check(loaded.train.as_ref())?;
            loaded.train.gather(&[0]).map(|batch| batch.targets.shape().to_string())
        };
        assert_eq!(load(["1", "-1", "1"], false).unwrap(), "[1]");
        assert_eq!(load(["1", "0", "1"], false).unwrap(), "[1]");
        assert_eq!(load(["1", "-1", "1"], true).unwrap(), "[1, 1]");
        for (labels, found) in [(["1", "1", "1"], "1"), (["same", "other", "same"], "other, same")] {
            let error = load(labels, false).unwrap_err().to_string();
            let expected = "targets for cosine-embedding: expected the labels -1 and 1, or 0 and 1, got";
            assert_eq!(error, format!("{expected} {found}"));
        }
        let error = load(["1", "0", "1"], true).unwrap_err().to_string();
        assert!(error.contains("sample 1 (from 0) has the target 0, expected -1 (apart) or 1 (alike)"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named_by_its_whole_path() {
        let dir = tempfile::tempdir().unwrap();
        let error = load(dir.path(), "format = \"mnist\"\ndir = \"m\"").unwrap_err().to_string();
        let file = std::path::absolute(dir.path()).unwrap().join("m").join("train-images-idx3-ubyte");
        assert!(error.starts_with(&file.display().to_string()), "{error}");
    }
}
