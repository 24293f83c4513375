//! Tests that need no file of their own at the crate's top: one binary, so that it links once.

mod batch_norm;
mod command_line;
mod compression;
mod device_ops;
mod device_pools;
mod directions;
mod endurance;
mod equivalence;
mod generate;
mod gradients;
mod loops;
mod losses;
mod memory;
mod optimizers;
mod predict;
mod resume;
mod right_values;
mod shaders;
mod simulated;
mod soak;
mod spikes;
mod support;
mod training;
mod tune;
mod unequal;
mod workers;
