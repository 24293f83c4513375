//! What a trained network is for: predictions, generated text, and the model as an ONNX file.

mod export;
mod generate;
mod predictor;

pub use generate::{Generator, Sampling};
pub use predictor::{Predictor, on_first};
