//! Tests that need no file of their own at the crate's top: one binary, so that it links once.

mod command_line;
mod device_ops;
mod device_pools;
mod gradients;
mod loops;
mod predict;
mod shaders;
mod support;
