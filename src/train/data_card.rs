//! What a run must know of its data after the training: shapes, class names, scaling. Stored in the run's folder, so that
//! evaluation and prediction see samples as the training did.

use serde::{Deserialize, Serialize};

use crate::data::{Dataset, Normalizer, TensorDataset};
use crate::tensor::TensorType;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataCard {
    /// Dimensions of one sample.
    pub input: Vec<usize>,
    /// Dimensions of one target; a class index has none.
    pub target: Vec<usize>,
    /// Class names by index, for classifiers.
    pub classes: Option<Vec<String>>,
    /// How raw values became inputs.
    pub normalizer: Normalizer,
}

impl DataCard {
    /// The card of a data set whose inputs `normalizer` made.
    pub fn new(data: &TensorDataset, normalizer: &Normalizer) -> Self {
        Self {
            input: data.input_type().shape.dims().to_vec(),
            target: data.target_type().shape.dims().to_vec(),
            classes: data.classes().map(<[String]>::to_vec),
            normalizer: normalizer.clone(),
        }
    }

    /// The type of one sample.
    pub fn input_type(&self) -> TensorType {
        TensorType::f32(self.input.clone())
    }

    /// The type of one target.
    pub fn target_type(&self) -> TensorType {
        if self.classes.is_some() { TensorType::u32([]) } else { TensorType::f32(self.target.clone()) }
    }
}
