//! What a run must know of its data after the training: shapes, class names, scaling. Stored in the run's folder, so
//! that evaluation and prediction see samples as the training did.

use serde::{Deserialize, Serialize};

use crate::data::{Border, Columns, Dataset, Normalizer, TensorDataset, TextDataset, Tokenizer};
use crate::error::Result;
use crate::tensor::{Shape, TensorType};

/// What a run must know of its data after the training: shapes, class names, scaling. It is stored in the run's folder,
/// so that evaluation and prediction see samples as the training did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataCard {
    /// Dimensions of one sample, with its border.
    pub input: Vec<usize>,
    /// Dimensions of one target; a class index has none.
    pub target: Vec<usize>,
    /// Class names by index, for classifiers.
    pub classes: Option<Vec<String>>,
    /// The columns of a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// What was put around images, before they were scaled.
    #[serde(default, skip_serializing_if = "Border::is_none")]
    pub border: Border,
    /// How raw values became inputs.
    pub normalizer: Normalizer,
    /// How text became tokens, for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// Number of tokens that there are, for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Which samples a run was trained on. Cards from before it was noted do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
}

/// What tells a run's samples from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Those that are trained on.
    pub train: Fingerprint,
    /// Those that are held out.
    pub held_out: Option<Fingerprint>,
}

/// What tells a data set from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of samples.
    pub samples: u64,
    /// [`Dataset::fingerprint`] in hexadecimal digits, where there is one.
    pub crc32: Option<String>,
}

impl Samples {
    /// What tells these data sets, the training's and the one that is held out, from others. Reads all of them.
    pub fn of(train: &dyn Dataset, held_out: Option<&dyn Dataset>) -> Self {
        let of = |data: &dyn Dataset| Fingerprint {
            samples: data.len() as u64,
            crc32: data.fingerprint().map(|crc| format!("{crc:08x}")),
        };
        Self { train: of(train), held_out: held_out.map(of) }
    }
}

impl DataCard {
    /// The card of a data set whose inputs `normalizer` made of samples with this border.
    pub fn new(data: &TensorDataset, border: Border, normalizer: &Normalizer) -> Self {
        Self {
            input: data.input_type().shape.dims().to_vec(),
            target: data.target_type().shape.dims().to_vec(),
            classes: data.classes().map(<[String]>::to_vec),
            columns: None,
            border,
            normalizer: normalizer.clone(),
            tokenizer: None,
            tokens: None,
            samples: None,
        }
    }

    /// The card of a text that `tokenizer` cut into tokens, of which there are `vocabulary`.
    pub(crate) fn of_text(data: &TextDataset, tokenizer: Tokenizer, vocabulary: usize) -> Self {
        Self {
            input: data.input_type().shape.dims().to_vec(),
            target: data.target_type().shape.dims().to_vec(),
            classes: None,
            columns: None,
            border: Border::default(),
            normalizer: Normalizer::None,
            tokenizer: Some(tokenizer),
            tokens: Some(vocabulary),
            samples: None,
        }
    }

    /// Dimensions of one sample as it is in a file, without its border.
    ///
    /// # Errors
    /// When the border does not fit into a sample.
    pub fn sample(&self) -> Result<Shape> {
        self.border.inside(&Shape::from(self.input.as_slice()))
    }

    /// The type of one sample.
    pub(crate) fn input_type(&self) -> TensorType {
        if self.tokens.is_some() { TensorType::u32(self.input.clone()) } else { TensorType::f32(self.input.clone()) }
    }

    /// The type of one target.
    pub(crate) fn target_type(&self) -> TensorType {
        if self.vocabulary().is_some() {
            TensorType::u32(self.target.clone())
        } else {
            TensorType::f32(self.target.clone())
        }
    }

    /// Number of classes or tokens that a model has to choose from; none where it gives numbers.
    pub fn vocabulary(&self) -> Option<usize> {
        self.classes.as_ref().map(Vec::len).or(self.tokens)
    }
}
