//! Where samples come from: file formats, data sets in memory, the order they are visited in, and the thread that
//! gathers batches ahead of the training loop.
//!
//! The order of samples depends on the seed and the epoch alone, never on how many devices there are; nothing here
//! knows of models, devices or training state, only of host tensors.

mod border;
pub mod csv;
mod dataset;
mod digits;
pub mod idx;
mod loader;
mod normalize;
mod sampler;
mod source;
mod split;
pub mod text;

pub use self::border::Border;
pub use self::csv::{Columns, CsvOptions, Label, read_csv, read_csv_columns, read_csv_features};
pub use self::dataset::TensorDataset;
pub use self::digits::digits;
pub use self::idx::{read_idx, read_idx_images, read_idx_labels};
pub(crate) use self::loader::Loader;
pub use self::normalize::{Normalization, Normalizer};
pub use self::sampler::Sampler;
pub(crate) use self::source::{REMEDY, SIZE_LIMIT};
pub use self::split::{Split, split, split_indices};
pub use self::text::{TextDataset, Tokenizer};

use self::dataset::gather_rows;
use crate::error::Result;
use crate::tensor::{HostTensor, TensorType};

/// Rows of a data set, gathered for one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The samples: `(n, ..sample)`.
    pub inputs: HostTensor,
    /// What they should give: class indices, u32 `(n)`, tokens, u32 `(n, length)`, or values, f32 `(n, ..)`.
    pub targets: HostTensor,
    /// One weight per sample, `n` of them, each at least 0.
    pub weights: Vec<f32>,
}

impl Batch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The samples `rows`, with the targets of the samples `targets`, one for each.
    pub(crate) fn paired(&self, rows: &[usize], targets: &[usize]) -> Result<Self> {
        let weights = rows.iter().map(|&row| self.weights[row]).collect();
        Ok(Self { inputs: gather_rows(&self.inputs, rows)?, targets: gather_rows(&self.targets, targets)?, weights })
    }
}

/// Samples that can be gathered by index, from any thread.
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape and type of one sample, without a batch dimension.
    fn input_type(&self) -> TensorType;

    /// Shape and type of one target, without a batch dimension: a u32 scalar for a class index, u32 `[length]` for
    /// tokens.
    fn target_type(&self) -> TensorType;

    /// The class names by index, when the targets are class indices with names.
    fn classes(&self) -> Option<&[String]>;

    /// All targets (N, ..), where they are in memory: a training then looks at their values before it starts.
    fn all_targets(&self) -> Option<&HostTensor> {
        None
    }

    /// A number that tells these samples, their targets, weights and order, from others: by it a run that goes on knows
    /// that its data is what it was. Without one it is not checked.
    fn fingerprint(&self) -> Option<u32> {
        None
    }

    /// The samples `indices`, in that order; an index may occur more than once.
    ///
    /// # Errors
    /// When an index is not below [`Dataset::len`], or the samples cannot be read.
    fn gather(&self, indices: &[usize]) -> Result<Batch>;
}
