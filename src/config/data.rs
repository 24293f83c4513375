//! `[data]`: where samples come from, what is held out, how inputs are scaled.

use std::path::{Path, PathBuf};

use super::reader::{Read, Section, choice, flag, list, number, text, whole};
use super::tree::{Value, quoted};
use crate::data::{self, CsvOptions, Dataset, Label, Normalization, Normalizer, TensorDataset};
use crate::error::{Error, Result};

/// `[data]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DataConfig {
    /// Where samples come from.
    pub source: Source,
    /// What is done to inputs.
    pub scale: Scale,
    /// What is held out.
    pub validation: Validation,
}

/// `data.format` and the keys that belong to it. Paths are absolute.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The handwritten digits that are compiled in.
    Digits,
    /// A table of numbers.
    Csv {
        /// The file, plain or gzip-compressed.
        path: PathBuf,
        /// The label's column; the last one where there is none.
        label: Option<Label>,
        /// Whether the first line holds column names.
        header: bool,
        /// The character between two fields.
        delimiter: char,
        /// The shape that a line's features make up.
        shape: Option<Vec<usize>>,
        /// Whether the label is a number to predict.
        regression: bool,
    },
    /// Images and labels in idx files.
    Idx(IdxFiles),
    /// The four files of MNIST, or of a data set that is laid out like it, in a folder; its test files are held out.
    Mnist {
        /// The folder.
        dir: PathBuf,
    },
}

/// A pair of idx files, plain or gzip-compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdxFiles {
    /// The images.
    pub images: PathBuf,
    /// Their labels.
    pub labels: PathBuf,
}

/// `data.scale`: what is done to inputs. What is measured is measured on the training part alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// `"none"`, `"max"`, `"standardize"` or `"standardize-channels"`.
    Fitted(Normalization),
    /// Every input times this number.
    Factor(f32),
}

/// `data.validation`: what is held out of training.
#[derive(Debug, Clone, PartialEq)]
pub enum Validation {
    /// Nothing.
    None,
    /// Part of the samples.
    Fraction {
        /// Which part.
        fraction: f64,
        /// Whether every class gives the same part.
        stratified: bool,
    },
    /// A CSV file like the training one.
    File(PathBuf),
    /// A pair of idx files like the training ones.
    Idx(IdxFiles),
    /// The test files of the MNIST folder.
    MnistTest,
}

/// Training data, ready to use.
#[derive(Debug, Clone)]
pub struct LoadedData {
    /// What is trained on.
    pub train: TensorDataset,
    /// What is held out.
    pub validation: Option<TensorDataset>,
    /// What was done to the inputs of both, and is to be done to any other.
    pub normalizer: Normalizer,
}

#[derive(Clone, Copy)]
enum Format {
    Digits,
    Csv,
    Idx,
    Mnist,
}

const FORMATS: [(&str, Format); 4] =
    [("digits", Format::Digits), ("csv", Format::Csv), ("idx", Format::Idx), ("mnist", Format::Mnist)];

const SCALES: [(&str, Normalization); 4] = [
    ("none", Normalization::None),
    ("max", Normalization::Scale),
    ("standardize", Normalization::Standardize),
    ("standardize-channels", Normalization::StandardizeChannels),
];

fn scale(value: &Value) -> Read<Scale> {
    let factor = || number(|v| (v as f32).is_finite() && v as f32 != 0.0, "")(value).map(|v| Scale::Factor(v as f32));
    let fitted = choice(&SCALES)(value).map(Scale::Fitted);
    fitted.or_else(|words| factor().map_err(|_| format!("{words}, or a number to multiply by")))
}

fn label(value: &Value) -> Read<Label> {
    match value {
        Value::String(name) => Ok(Label::Name(name.clone())),
        Value::Integer(index) => Ok(Label::Index(*index)),
        _ => Err("a column's name, or its number from 0 (-1 is the last)".to_owned()),
    }
}

fn delimiter(value: &Value) -> Read<char> {
    let only =
        |v: &String| v.chars().next().filter(|c| v.chars().count() == 1 && c.is_ascii() && !"\"\r\n".contains(*c));
    text(value).ok().as_ref().and_then(only).ok_or_else(|| "one ASCII character".to_owned())
}

fn idx_files(mut section: Section) -> Result<IdxFiles> {
    let images = section.path("images", "the idx file of images")?;
    let labels = section.path("labels", "the idx file of labels")?;
    section.finish()?;
    Ok(IdxFiles { images, labels })
}

impl DataConfig {
    pub(super) fn read(mut section: Section) -> Result<Self> {
        let format = section.get("format", Format::Digits, choice(&FORMATS))?;
        let source = match format {
            Format::Digits => Source::Digits,
            Format::Csv => Source::Csv {
                path: section.path("path", "the CSV file")?,
                label: section.optional("label", label)?,
                header: section.get("header", true, flag)?,
                delimiter: section.get("delimiter", ',', delimiter)?,
                shape: section.optional("shape", list(whole(1)))?,
                regression: section.get("regression", false, flag)?,
            },
            Format::Idx => Source::Idx(IdxFiles {
                images: section.path("images", "the idx file of images")?,
                labels: section.path("labels", "the idx file of labels")?,
            }),
            Format::Mnist => Source::Mnist { dir: section.path("dir", "the folder with the four idx files")? },
        };
        let scale = section.get("scale", Scale::Fitted(Normalization::None), scale)?;
        let validation = Self::read_validation(&mut section, &source)?;
        section.finish()?;
        Ok(Self { source, scale, validation })
    }

    fn read_validation(section: &mut Section, source: &Source) -> Result<Validation> {
        let stratified = section.get("stratified", true, flag)?;
        let node = section.take("validation");
        let expected = match source {
            Source::Csv { .. } => "a fraction of at least 0 and below 1, \"none\" or a CSV file",
            Source::Idx(_) => "a fraction of at least 0 and below 1, \"none\" or { images = …, labels = … }",
            Source::Mnist { .. } => "a fraction of at least 0 and below 1, \"none\" or \"test\"",
            Source::Digits => "a fraction of at least 0 and below 1, or \"none\"",
        };
        let Some(node) = node else {
            return Ok(match source {
                Source::Mnist { .. } => Validation::MnistTest,
                _ => Validation::Fraction { fraction: 0.2, stratified },
            });
        };
        let fraction = match node.value {
            Value::Integer(0) => Some(0.0),
            Value::Float(v) if (0.0..1.0).contains(&v) => Some(v),
            _ => None,
        };
        match (&node.value, source) {
            _ if fraction == Some(0.0) => Ok(Validation::None),
            (Value::String(word), _) if word == "none" => Ok(Validation::None),
            (Value::String(word), Source::Mnist { .. }) if word == "test" => Ok(Validation::MnistTest),
            (Value::String(path), Source::Csv { .. }) => Ok(Validation::File(node.origin.resolve(path))),
            (Value::Table(_), Source::Idx(_)) => {
                Ok(Validation::Idx(idx_files(Section::new("data.validation", node.clone())?)?))
            }
            _ => match fraction {
                Some(fraction) => Ok(Validation::Fraction { fraction, stratified }),
                None => Err(section.mismatch("validation", &node, expected)),
            },
        }
    }

    /// Whether targets are numbers, not classes.
    pub fn regression(&self) -> bool {
        matches!(self.source, Source::Csv { regression: true, .. })
    }

    pub(super) fn write(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let mut entries = match &self.source {
            Source::Digits => vec![("format", quoted("digits"))],
            Source::Csv { path: file, label, header, delimiter, shape, regression } => {
                let mut entries = vec![("format", quoted("csv")), ("path", path(file))];
                entries.extend(label.iter().map(|label| match label {
                    Label::Name(name) => ("label", quoted(name)),
                    Label::Index(index) => ("label", index.to_string()),
                }));
                entries.push(("header", header.to_string()));
                entries.push(("delimiter", quoted(&delimiter.to_string())));
                entries.extend(shape.iter().map(|shape| ("shape", format!("{shape:?}"))));
                entries.push(("regression", regression.to_string()));
                entries
            }
            Source::Idx(IdxFiles { images, labels }) => {
                vec![("format", quoted("idx")), ("images", path(images)), ("labels", path(labels))]
            }
            Source::Mnist { dir } => vec![("format", quoted("mnist")), ("dir", path(dir))],
        };
        let scale = match self.scale {
            Scale::Factor(factor) => format!("{factor:?}"),
            Scale::Fitted(setting) => {
                SCALES.iter().find(|(_, s)| *s == setting).map(|(name, _)| quoted(name)).unwrap_or_default()
            }
        };
        entries.push(("scale", scale));
        let validation = match &self.validation {
            Validation::None => quoted("none"),
            Validation::Fraction { fraction, stratified } => {
                entries.push(("stratified", stratified.to_string()));
                format!("{fraction:?}")
            }
            Validation::File(file) => path(file),
            Validation::Idx(files) => {
                format!("{{ images = {}, labels = {} }}", path(&files.images), path(&files.labels))
            }
            Validation::MnistTest => quoted("test"),
        };
        entries.push(("validation", validation));
        entries
    }

    /// Reads the data, holds out the validation part and scales both. `seed` decides which samples are held out.
    ///
    /// # Errors
    /// When a file cannot be used; the message says where.
    pub fn load(&self, seed: u64) -> Result<LoadedData> {
        let all = self.read_source()?;
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
            Some(data) => Some(normalizer.apply(data)?),
            None => None,
        };
        Ok(LoadedData { train: normalizer.apply(train)?, validation, normalizer })
    }

    /// Reads another file of the same kind, unscaled: a CSV file, or a folder laid out like MNIST whose test files are
    /// taken. `classes` are those of training.
    ///
    /// # Errors
    /// When the file cannot be used, or this configuration's data has no such files.
    pub fn read_other(&self, path: &Path, classes: Option<&[String]>) -> Result<TensorDataset> {
        match &self.source {
            Source::Csv { .. } | Source::Digits => self.read_csv(path, classes),
            Source::Mnist { .. } | Source::Idx(_) => read_mnist(path, "t10k", classes),
        }
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
            Source::Idx(_) | Source::Mnist { .. } => CsvOptions { header: false, ..default },
        }
    }

    fn read_source(&self) -> Result<TensorDataset> {
        match &self.source {
            Source::Digits => data::digits(),
            Source::Csv { path, .. } => self.read_csv(path, None),
            Source::Idx(files) => data::read_idx(&files.images, &files.labels, None),
            Source::Mnist { .. } => self.read_mnist("train", None),
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

    use super::super::RunConfig;
    use super::*;

    fn load(dir: &Path, data: &str) -> Result<LoadedData> {
        let text = format!("[data]\n{data}\n[model]\nlayers = [{{ kind = \"linear\", out = 2 }}]\n");
        RunConfig::parse(&text, "run.toml", dir, &[])?.data.load(0)
    }

    #[test]
    fn a_validation_file_has_the_classes_and_the_scale_of_training() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.csv"), "x;kind\n1;no\n3;yes\n5;yes\n").unwrap();
        fs::write(dir.path().join("b.csv"), "x;kind\n5;yes\n").unwrap();
        let keys = "format = \"csv\"\npath = \"a.csv\"\ndelimiter = \";\"\nlabel = \"kind\"\nscale = \"standardize\"\n";
        let loaded = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap();
        let validation = loaded.validation.unwrap();
        assert_eq!(validation.targets().as_u32().unwrap(), [1]);
        assert!((validation.inputs().as_f32().unwrap()[0] - 1.224_745).abs() < 1e-5);
        assert_eq!(load(dir.path(), &format!("{keys}validation = \"none\"")).unwrap().validation, None);

        fs::write(dir.path().join("b.csv"), "x;kind\n5;maybe\n").unwrap();
        let error = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap_err().to_string();
        assert!(error.contains("b.csv:2: column 2: "), "{error}");
        fs::write(dir.path().join("b.csv"), "x;y;kind\n5;5;yes\n").unwrap();
        let error = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap_err().to_string();
        assert_eq!(error, "data.validation: expected samples of f32[1] as in training, got f32[2]");
    }

    #[test]
    fn a_missing_file_is_named_by_its_whole_path() {
        let dir = tempfile::tempdir().unwrap();
        let error = load(dir.path(), "format = \"mnist\"\ndir = \"m\"").unwrap_err().to_string();
        let file = std::path::absolute(dir.path()).unwrap().join("m").join("train-images-idx3-ubyte");
        assert!(error.starts_with(&file.display().to_string()), "{error}");
    }
}
