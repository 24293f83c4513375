//! What a checkpoint holds of a run beside its tensors, and its tensors by name.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::position::Position;
use crate::checkpoint::Snapshot;
use crate::error::{Error, Result};
use crate::tensor::{HostTensor, Named};

/// The JSON part of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) position: Position,
    pub(super) seed: u64,
    /// Samples of an update; the position counts in them.
    pub(super) window: usize,
    /// Whether the order of samples is the seed's. Checkpoints from before there was a choice do not say: it was.
    #[serde(default = "yes")]
    pub(super) shuffle: bool,
    /// The optimizer's name in run files. Checkpoints from before it was noted do not say.
    #[serde(default)]
    pub(super) optimizer: Option<String>,
    /// Rows of a full batch, by device.
    pub(super) split: Vec<usize>,
    /// The devices' names; of older checkpoints none.
    #[serde(default)]
    pub(super) devices: Vec<String>,
    /// The device that applies updates. Checkpoints from before it could change do not say: it was the first.
    #[serde(default)]
    pub(super) lead: usize,
}

fn yes() -> bool {
    true
}

pub(super) fn to_value(state: &State) -> Result<Value> {
    serde_json::to_value(state).map_err(|e| Error::Training(format!("the run's state: {e}")))
}

pub(super) fn parse(snapshot: &Snapshot) -> Result<State> {
    let state: State = serde_json::from_value(snapshot.state.clone())
        .map_err(|e| Error::Training(format!("the checkpoint's state is not one of this program: {e}")))?;
    state.position.check(snapshot.step).map_err(|what| {
        let message = format!("its position is impossible: {what}; it was damaged or edited, take an earlier one");
        Error::checkpoint(format!("of step {}", snapshot.step), message)
    })?;
    Ok(state)
}

/// The tensors whose names end in `suffix`, by what is before it.
pub(crate) fn values(tensors: &Named<HostTensor>, suffix: &str) -> Result<Named<Vec<f32>>> {
    let mut values = Named::default();
    for (name, tensor) in tensors {
        let Some(parameter) = name.strip_suffix(suffix) else { continue };
        values.extend([(parameter, floats(name, tensor)?.to_vec())])?;
    }
    Ok(values)
}

/// The values of the tensor `name`.
pub(super) fn floats<'a>(name: &str, tensor: &'a HostTensor) -> Result<&'a [f32]> {
    tensor.as_f32().ok_or_else(|| Error::shape(format!("tensor {name}"), "expected f32, got u32"))
}
