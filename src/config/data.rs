//! `[data]`: where samples come from, what is held out, how inputs are scaled.

use std::path::{Path, PathBuf};

use super::devices::bytes;
use super::image_layers::sides;
use super::reader::{Read, Section, choice, flag, list, number, text, whole};
use super::text::TextSource;
use super::tree::{Value, quoted};
use crate::data::{Border, Label, Normalization, SIZE_LIMIT};
use crate::error::Result;

/// `[data]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DataConfig {
    /// Where samples come from.
    pub source: Source,
    /// What a sample should give.
    pub target: Target,
    /// What is put around images.
    pub border: Border,
    /// What is done to inputs.
    pub scale: Scale,
    /// What is held out.
    pub validation: Validation,
    /// Most bytes of a file that is read as a whole, decompressed.
    pub size_limit: u64,
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
    /// A text, for a language model.
    Text(TextSource),
}

/// A pair of idx files, plain or gzip-compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdxFiles {
    /// The images.
    pub images: PathBuf,
    /// Their labels.
    pub labels: PathBuf,
}

/// `data.target`: what a sample should give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Its label: a class, or a number.
    Label,
    /// Itself, scaled as the inputs are: for autoencoders.
    Input,
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
    /// A CSV file or a text like the training one.
    File(PathBuf),
    /// A pair of idx files like the training ones.
    Idx(IdxFiles),
    /// The test files of the MNIST folder.
    MnistTest,
}

#[derive(Clone, Copy)]
enum Format {
    Digits,
    Csv,
    Idx,
    Mnist,
    Text,
}

const FORMATS: [(&str, Format); 5] = [
    ("digits", Format::Digits),
    ("csv", Format::Csv),
    ("idx", Format::Idx),
    ("mnist", Format::Mnist),
    ("text", Format::Text),
];

const TARGETS: [(&str, Target); 2] = [("label", Target::Label), ("input", Target::Input)];

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
            Format::Text => Source::Text(TextSource::read(&mut section)?),
        };
        let size_limit = section.get("size_limit", SIZE_LIMIT, bytes)?;
        if let Source::Text(_) = source {
            let validation = Self::read_validation(&mut section, &source)?;
            section.finish()?;
            let (border, scale) = (Border::default(), Scale::Fitted(Normalization::None));
            return Ok(Self { source, target: Target::Label, border, scale, validation, size_limit });
        }
        let target = section.get("target", Target::Label, choice(&TARGETS))?;
        let border = section.get("padding", Border::default(), |value| sides(value).map(Border))?;
        let scale = section.get("scale", Scale::Fitted(Normalization::None), scale)?;
        let validation = Self::read_validation(&mut section, &source)?;
        section.finish()?;
        Ok(Self { source, target, border, scale, validation, size_limit })
    }

    fn read_validation(section: &mut Section, source: &Source) -> Result<Validation> {
        // A text has no classes to stratify by; its end is held out.
        let stratified = !matches!(source, Source::Text(_)) && section.get("stratified", true, flag)?;
        let node = section.take("validation");
        let expected = match source {
            Source::Csv { .. } => "a fraction of at least 0 and below 1, \"none\" or a CSV file",
            Source::Idx(_) => "a fraction of at least 0 and below 1, \"none\" or { images = …, labels = … }",
            Source::Mnist { .. } => "a fraction of at least 0 and below 1, \"none\" or \"test\"",
            Source::Digits => "a fraction of at least 0 and below 1, or \"none\"",
            Source::Text(_) => "a fraction of at least 0 and below 1, \"none\" or a text file",
        };
        let Some(node) = node else {
            return Ok(match source {
                Source::Mnist { .. } => Validation::MnistTest,
                Source::Text(_) => Validation::Fraction { fraction: 0.1, stratified },
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
            (Value::String(path), Source::Csv { .. } | Source::Text(_)) => {
                Ok(Validation::File(node.origin.resolve(path)))
            }
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
        self.target == Target::Input || matches!(self.source, Source::Csv { regression: true, .. })
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
            Source::Text(text) => text.write(),
        };
        let text = matches!(self.source, Source::Text(_));
        if !text {
            entries.push(("target", quoted(if self.target == Target::Input { "input" } else { "label" })));
        }
        let scale = match self.scale {
            Scale::Factor(factor) => format!("{factor:?}"),
            Scale::Fitted(setting) => {
                SCALES.iter().find(|(_, s)| *s == setting).map(|(name, _)| quoted(name)).unwrap_or_default()
            }
        };
        if !text {
            entries.push(("padding", format!("{:?}", self.border.0)));
            entries.push(("scale", scale));
        }
        let validation = match &self.validation {
            Validation::None => quoted("none"),
            Validation::Fraction { fraction, stratified } => {
                if !text {
                    entries.push(("stratified", stratified.to_string()));
                }
                format!("{fraction:?}")
            }
            Validation::File(file) => path(file),
            Validation::Idx(files) => {
                format!("{{ images = {}, labels = {} }}", path(&files.images), path(&files.labels))
            }
            Validation::MnistTest => quoted("test"),
        };
        entries.push(("validation", validation));
        entries.push(("size_limit", self.size_limit.to_string()));
        entries
    }
}
