//! Checkpoints on disk: one folder per generation, complete or not there at all.
//!
//! It exists so that a run can lose power, be killed or fill the disk at any moment and still resume from a state in
//! which weights, optimizer moments and run state belong to the same step. It sees named host tensors and a JSON value;
//! it must not know what a model, an optimizer or a device is, nor what the JSON means.
//!
//! ```text
//! checkpoints/
//!   step-00000123/
//!     weights.safetensors
//!     optimizer.safetensors
//!     state.json             format version, step, score, checksums of the two files, the caller's state
//!   .tmp-step-00000124/      a save that was interrupted: ignored, removed by the next save
//!   .undone-1-step-00000130/ one that training went back from: ignored, removed once there is one beyond it
//! ```
//!
//! A save writes into a hidden sibling folder, syncs every file and the folder, then renames it: the rename is the one
//! moment at which the checkpoint comes into being. The score used to find the best checkpoint is kept inside the
//! checkpoint, so there is no index that could disagree with the folders.

mod atomic;
mod interchange;
mod manifest;
mod name_map;
mod sealed;
mod store;
mod tensors;
#[cfg(test)]
mod tests;
mod timeline;

use std::path::PathBuf;

use serde_json::Value;

pub(crate) use atomic::replace_mapped;
pub use atomic::{check_writable, native_path, write_atomic};
pub use interchange::{Imported, Match, read_weights, write_weights};
pub use name_map::NameMap;
pub(crate) use sealed::{Broken, seal, unseal};
pub use store::Store;
pub(crate) use tensors::match_tensors;
pub use tensors::{read_tensors, write_tensors};

use crate::tensor::{HostTensor, Named};

/// All that one checkpoint holds: the run as it was after `step` updates.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Updates done so far.
    pub step: u64,
    /// The model's parameters and buffers, by name. A loaded snapshot has them sorted by name.
    pub weights: Named<HostTensor>,
    /// The optimizer's tensors, by name. A loaded snapshot has them sorted by name.
    pub optimizer: Named<HostTensor>,
    /// Everything else that resuming needs. JSON has no NaN or infinity: `serde_json` turns them into `null`.
    pub state: Value,
}

/// One checkpoint of a [`Store`], as far as its folder tells without reading the tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Updates done when it was saved.
    pub step: u64,
    /// Its folder, as [`Store::load`] takes it.
    pub path: PathBuf,
    /// How good it is, higher being better; `None` when it was saved without a score or its `state.json` is unreadable.
    pub score: Option<f64>,
}
