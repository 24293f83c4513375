//! Adapters, devices and the executor of plans: the only place that names wgpu. It sees plans and update plans, never
//! an op or a graph, and does not know that there are other devices.

mod adapter;
mod clock;
mod compressor;
mod device;
mod engine;
mod executable;
mod loops;
mod program;
mod staging;

pub use adapter::{Adapter, Adapters, Kind};
#[cfg(not(feature = "test-support"))]
pub(crate) use {
    device::Device,
    engine::{Duty, Engine, MicroBatch, TimedBy},
    executable::Executable,
};
#[cfg(feature = "test-support")]
pub use {
    device::Device,
    engine::{Duty, Engine, MicroBatch, TimedBy},
    executable::Executable,
    loops::check_loops,
};
