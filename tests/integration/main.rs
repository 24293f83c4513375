//! Tests that need no file of their own at the crate's top: one binary, so that it links once.

mod device_ops;
mod directions;
mod equivalence;
mod gradients;
mod memory;
mod optimizers;
mod resume;
mod right_values;
mod shaders;
mod simulated;
mod support;
mod training;
mod workers;
