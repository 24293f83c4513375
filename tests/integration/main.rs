//! Tests that need no file of their own at the crate's top: one binary, so that it links once.

mod average;
mod command_line;
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
mod nonfinite;
mod optimizers;
mod predict;
mod resume;
mod right_values;
mod shaders;
mod simulated;
mod support;
mod training;
mod tune;
mod unequal;
mod update_rules;
mod workers;
