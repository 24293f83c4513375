//! Trains one neural network on every GPU in a machine at once, whatever their makers, through WebGPU.

pub mod data;
pub mod error;
pub mod rng;
pub mod tensor;
