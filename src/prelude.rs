//! What a program that trains needs: `use everygpu::prelude::*`.

pub use crate::data::{
    Batch, CsvOptions, Dataset, Normalization, Normalizer, TensorDataset, digits, read_csv, read_idx, split,
};
pub use crate::error::{Error, Result};
pub use crate::gpu::{Adapter, Adapters};
pub use crate::nn::{CrossEntropy, Loss, Model, Sequential};
pub use crate::optim::{Optimizer, Schedule};
pub use crate::predict::Predictor;
pub use crate::self_test::usable;
pub use crate::tensor::{HostTensor, Shape, TensorType};
pub use crate::train::{EpochRecord, Flow, MicroBatchSize, Observer, Progress, Split, Task, TrainOptions, Trainer};
