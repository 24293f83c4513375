//! Trains one neural network on every GPU in a machine at once, whatever their makers, through WebGPU.
//!
//! [`train::Trainer`] has an example; [`prelude`] is what most programs need. The feature `test-support` opens what is inside to
//! this repository's own tests, and is no part of the interface.

mod balance;
pub mod checkpoint;
pub mod config;
mod coordinator;
pub mod data;
pub mod error;
mod file;
mod fleet;
pub mod gpu;
pub mod graph;
pub mod kernel;
pub mod nn;
pub mod onnx;
pub mod op;
pub mod optim;
pub mod plan;
pub mod predict;
pub mod prelude;
#[cfg(not(feature = "test-support"))]
mod rng;
#[cfg(feature = "test-support")]
pub mod rng;
pub mod run;
pub mod self_test;
pub mod shaders;
pub mod tensor;
pub mod trace;
pub mod train;
pub mod tune;
