//! `[data]`: where samples come from, what is held out, how inputs are scaled.

use std::path::PathBuf;

use super::fields::{self, Fields, Kinds, Settings};
use super::reader::Wrong;
use super::sizes::{bytes, shape, sides};
use super::text::TextSource;
use super::tree::{Node, Value, quoted};
use super::values::{Form, choice, either, file_path, flag, text_if};
use crate::data::{Border, Label, Normalization, SIZE_LIMIT};

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

const TARGETS: [(&str, Target); 2] = [("label", Target::Label), ("input", Target::Input)];

const SCALES: [(&str, Scale); 4] = [
    ("none", Scale::Fitted(Normalization::None)),
    ("max", Scale::Fitted(Normalization::Scale)),
    ("standardize", Scale::Fitted(Normalization::Standardize)),
    ("standardize-channels", Scale::Fitted(Normalization::StandardizeChannels)),
];

fn scale() -> Form<Scale> {
    let factor = |value: &Value| {
        let factor = match value {
            Value::Integer(v) => *v as f64 as f32,
            Value::Float(v) => *v as f32,
            _ => return None,
        };
        Some(Scale::Factor(factor)).filter(|_| factor.is_finite() && factor != 0.0)
    };
    let words = choice(&SCALES);
    either(choice(&SCALES), "a number to multiply by", Form::plain("", factor)).written(move |scale| match scale {
        Scale::Factor(factor) => format!("{factor:?}"),
        fitted => words.write(fitted),
    })
}

fn label() -> Form<Label> {
    let read = |value: &Value| match value {
        Value::String(name) => Some(Label::Name(name.clone())),
        Value::Integer(index) => Some(Label::Index(*index)),
        _ => None,
    };
    Form::plain("a column's name, or its number from 0 (-1 is the last)", read).written(|label| match label {
        Label::Name(name) => quoted(name),
        Label::Index(index) => index.to_string(),
    })
}

fn delimiter() -> Form<char> {
    let fits = |c: char| c.is_ascii() && !"\"\r\n".contains(c);
    let one = move |text: &str| text.chars().count() == 1 && text.chars().all(fits);
    text_if("one ASCII character", one).map(|text| text.chars().next().unwrap_or_default(), char::to_string)
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            source: Source::Digits,
            target: Target::Label,
            border: Border::default(),
            scale: Scale::Fitted(Normalization::None),
            validation: Validation::of(&Source::Digits, true),
            size_limit: SIZE_LIMIT,
        }
    }
}

impl Settings for IdxFiles {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("images", "the idx file of images", file_path("a string"), &mut self.images);
        f.required("labels", "the idx file of labels", file_path("a string"), &mut self.labels);
    }
}

impl Kinds for Source {
    fn all() -> Vec<(&'static str, Self)> {
        let csv = Self::Csv {
            path: PathBuf::new(),
            label: None,
            header: true,
            delimiter: ',',
            shape: None,
            regression: false,
        };
        vec![
            ("digits", Self::Digits),
            ("csv", csv),
            ("idx", Self::Idx(IdxFiles::default())),
            ("mnist", Self::Mnist { dir: PathBuf::new() }),
            ("text", Self::Text(TextSource::default())),
        ]
    }
}

impl Settings for Source {
    fn fields(&mut self, f: &mut Fields<'_>) {
        match self {
            Self::Digits => {}
            Self::Csv { path: file, label: column, header, delimiter: character, shape: dims, regression } => {
                f.required("path", "the CSV file", file_path("a string"), file);
                f.optional("label", "The label's column; else the last one", label(), column);
                f.field("header", "Whether the first line holds column names", flag(), header);
                f.field("delimiter", "The character between two fields", delimiter(), character);
                f.optional("shape", "The shape that a line's features make up", shape(), dims);
                f.field("regression", "Whether the label is a number to predict", flag(), regression);
            }
            Self::Idx(files) => files.fields(f),
            Self::Mnist { dir } => f.required("dir", "the folder with the four idx files", file_path("a string"), dir),
            Self::Text(text) => text.fields(f),
        }
    }
}

impl Validation {
    /// What is held out of such data when nothing is said.
    fn of(source: &Source, stratified: bool) -> Self {
        match source {
            Source::Mnist { .. } => Self::MnistTest,
            Source::Text(_) => Self::Fraction { fraction: 0.1, stratified: false },
            _ => Self::Fraction { fraction: 0.2, stratified },
        }
    }

    /// What may be held out of such data.
    fn form(source: &Source, stratified: bool) -> Form<Self> {
        let words = match source {
            Source::Csv { .. } => "a fraction of at least 0 and below 1, \"none\" or a CSV file",
            Source::Idx(_) => "a fraction of at least 0 and below 1, \"none\" or { images = …, labels = … }",
            Source::Mnist { .. } => "a fraction of at least 0 and below 1, \"none\" or \"test\"",
            Source::Digits => "a fraction of at least 0 and below 1, or \"none\"",
            Source::Text(_) => "a fraction of at least 0 and below 1, \"none\" or a text file",
        };
        let source = source.clone();
        let read = move |name: &str, node: &Node| match (&node.value, &source) {
            (Value::Integer(0), _) => Ok(Self::None),
            (Value::Float(fraction), _) if *fraction == 0.0 => Ok(Self::None),
            (&Value::Float(fraction), _) if (0.0..1.0).contains(&fraction) => {
                Ok(Self::Fraction { fraction, stratified })
            }
            (Value::String(word), _) if word == "none" => Ok(Self::None),
            (Value::String(word), Source::Mnist { .. }) if word == "test" => Ok(Self::MnistTest),
            (Value::String(_), Source::Csv { .. } | Source::Text(_)) => {
                Ok(Self::File(file_path(words).read(name, node)?))
            }
            (Value::Table(_), Source::Idx(_)) => Ok(Self::Idx(fields::table(name, node, IdxFiles::default())?)),
            _ => Err(Wrong::Other),
        };
        Form::new(words, read, |validation| match validation {
            Self::None => quoted("none"),
            Self::Fraction { fraction, .. } => format!("{fraction:?}"),
            Self::File(file) => file_path("").write(file),
            Self::Idx(files) => fields::inline(|f| files.clone().fields(f)),
            Self::MnistTest => quoted("test"),
        })
    }
}

impl DataConfig {
    /// The section's fields.
    pub(super) fn fields(&mut self, f: &mut Fields<'_>) {
        f.kind("format", "Where samples come from", &mut self.source);
        f.settings(&mut self.source);
        // A text has no classes to stratify by; its end is held out.
        let text = matches!(self.source, Source::Text(_));
        let mut stratified = match self.validation {
            Validation::Fraction { stratified, .. } if !text => Some(stratified),
            _ => None,
        };
        if f.has(!text) {
            let border = sides().map(Border, |border| border.0);
            f.field("target", "What a sample should give", choice(&TARGETS), &mut self.target);
            f.field("padding", "Rows and columns of zeros around images", border, &mut self.border);
            f.field("scale", "What is done to inputs", scale(), &mut self.scale);
            let each = "Whether a held-out fraction takes the same part of every class";
            f.optional("stratified", each, flag(), &mut stratified);
        }
        let stratified = stratified.unwrap_or(!text);
        let form = Validation::form(&self.source, stratified);
        let default = ("0.2", Validation::of(&self.source, stratified));
        f.derived("validation", "What is held out of training", form, default, &mut self.validation);
        f.field("size_limit", "Most bytes of a file that is read as a whole", bytes(), &mut self.size_limit);
    }

    /// Whether targets are numbers, not classes.
    pub fn regression(&self) -> bool {
        self.target == Target::Input || matches!(self.source, Source::Csv { regression: true, .. })
    }
}
