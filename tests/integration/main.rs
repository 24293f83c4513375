//! Tests that need no file of their own at the crate's top: one binary, so that it links once.

mod device_ops;
mod gradients;
mod predict;
mod shaders;
mod support;
