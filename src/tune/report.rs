//! What tuning found, as numbers: for tables, plots and scripts.

use serde::Serialize;

use super::advice::Advice;
use super::measured::Sweep;
use super::noise::NoiseScale;

/// An adapter and its sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterSweep {
    /// Its index on this machine.
    pub index: usize,
    /// Its index and name.
    pub label: String,
    /// `discrete`, `software`, ….
    pub kind: &'static str,
    /// Its driver, in the driver's words.
    pub driver: String,
    /// What was found.
    #[serde(flatten)]
    pub sweep: Sweep,
}

/// All that [`super::tune`] found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuneReport {
    /// Samples of the training set.
    pub samples: usize,
    /// Bytes that a device may allocate, where the run limits it.
    pub memory_limit: Option<u64>,
    /// Logical devices that the run opens on each adapter.
    pub replicas: usize,
    /// One an adapter, in the order of the adapters given.
    pub adapters: Vec<AdapterSweep>,
    /// The gradient noise scale; none where there are too few samples, or no device could measure it.
    pub noise: Option<NoiseScale>,
    /// What to do.
    pub advice: Advice,
}
