//! Trains one neural network on every GPU in a machine at once, whatever their makers, through WebGPU. Each device gets
//! a share of every batch by its speed, and the shares do not change the result.
//!
//! People do three things with it. `examples/` has a whole program for the second and the third.
//!
//! # Train what a run file describes
//!
//! Without Rust: `everygpu train RUN.toml`. `docs/run-file.md` has every key. From Rust:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use everygpu::config::RunConfig;
//! use everygpu::prelude::*;
//!
//! let config = RunConfig::load(Path::new("examples/digits.toml"), &[])?;
//! let data = config.data.load(config.train.seed, &config.model.loss)?;
//! let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
//! let mut trainer = Trainer::builder(config.task(&data.card)?, config.train).adapters(&adapters).start()?;
//! let report = trainer.fit(&data.train, data.validation.as_ref(), &mut |_: &Progress<'_>| Flow::Continue)?;
//! println!("{} steps", report.steps);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Train a network that is written in Rust
//!
//! A [`nn::Sequential`] or any other [`nn::Model`], on a [`data::Dataset`]:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use everygpu::prelude::*;
//!
//! // Handwritten digits; a fifth is held out. They are scaled by what the training samples say.
//! let (train, held_out) = split(&digits()?, 0.2, 0, true)?;
//! let normalizer = Normalizer::fit(Normalization::Scale, &train)?;
//! let train: Arc<dyn Dataset> = Arc::new(normalizer.apply(train)?);
//! let held_out: Arc<dyn Dataset> = Arc::new(normalizer.apply(held_out)?);
//!
//! let model = Sequential::new([1, 8, 8]).flatten().linear(64).relu().linear(10);
//! let options = TrainOptions { epochs: 20, schedule: Schedule::cosine(5e-3), ..TrainOptions::default() };
//! let adapters = Adapters::discover()?.select("auto")?;
//! let mut trainer = Trainer::builder(Task::classification(model), options).adapters(&adapters).start()?;
//! trainer.fit(&train, Some(&held_out), &mut |_: &Progress<'_>| Flow::Continue)?;
//! println!("held-out accuracy {:?}", trainer.evaluate(&held_out)?.accuracy());
//! # Ok::<(), Error>(())
//! ```
//!
//! # Write an own op
//!
//! An [`op::Op`] has a shape rule, a kernel in WGSL, a backward rule made of ops, and a plain reference in f64.
//! [`self_test::check_op`] holds them against each other on an adapter:
//!
//! ```no_run
//! use everygpu::kernel::{Kernel, Lowering, Shader, Step, Target, elementwise, input, output};
//! use everygpu::op::{Backward, Emit, Example, Op, Reference, ValueId, expect_f32};
//! use everygpu::prelude::*;
//! use everygpu::self_test::check_op;
//!
//! /// y = 2x
//! #[derive(Debug)]
//! struct Twice;
//!
//! // `elementwise` calls `element` for each index.
//! const TWICE: Shader = Shader::new(
//!     "twice",
//!     "#import elementwise
//!     @group(0) @binding(0) var<storage, read> x: array<f32>;
//!     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
//!
//!     fn element(i: u32) {
//!         y[i] = 2.0 * x[i];
//!     }",
//! );
//!
//! impl Op for Twice {
//!     fn name(&self) -> &'static str {
//!         "twice"
//!     }
//!     fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
//!         let [x] = expect_f32(self.name(), inputs)?;
//!         Ok(vec![TensorType::f32(x)])
//!     }
//!     fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
//!         let kernel = Kernel::linear(TWICE, 64);
//!         Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), output(0)]).into())
//!     }
//!     fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
//!         let dy = node.dy()?;
//!         Ok(vec![node.when(0, || emit.emit(Twice, &[dy]))?])
//!     }
//!     fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
//!         vec![inputs[0].map(|x| 2.0 * x)]
//!     }
//! }
//!
//! let examples = [Example::new(Twice, [&[1]]), Example::new(Twice, [&[5, 13]])];
//! for adapter in Adapters::discover()?.iter() {
//!     println!("{}: within {:.3} of the tolerance", adapter.label(), check_op(adapter, &examples)?);
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! A [`nn::Layer`] brings it into a network: `examples/custom_op.rs`.
//!
//! The feature `test-support` opens what is inside to this repository's own tests, and is no part of the interface.

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
pub mod profile;
#[cfg(not(feature = "test-support"))]
mod rng;
#[cfg(feature = "test-support")]
pub mod rng;
pub mod run;
mod scratch;
pub mod self_test;
pub mod shaders;
pub mod tensor;
pub mod trace;
pub mod train;
pub mod tune;
