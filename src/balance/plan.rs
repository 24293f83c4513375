//! What is decided: rows by device, and who updates which bucket.

use crate::error::{Error, Result};

/// How a batch is divided.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Split {
    /// By measured speed.
    #[default]
    Speed,
    /// Equally.
    Even,
    /// In proportion to these weights, one a device.
    Weights(Vec<f64>),
}

impl Split {
    /// Checks the weights.
    ///
    /// # Errors
    /// When one is negative or not finite, or all are zero.
    pub fn validate(&self) -> Result<()> {
        let Self::Weights(weights) = self else { return Ok(()) };
        let bad = weights.iter().any(|w| !w.is_finite() || *w < 0.0) || weights.iter().sum::<f64>() <= 0.0;
        if bad {
            let message = format!("expected weights of 0 or more that are not all 0, got {weights:?}");
            return Err(Error::invalid("train.split", message));
        }
        Ok(())
    }

    /// The devices' shares before anything is measured.
    pub(super) fn shares(&self, devices: usize) -> Result<Vec<f64>> {
        match self {
            Self::Weights(weights) if weights.len() == devices => Ok(weights.clone()),
            Self::Weights(weights) => {
                let message = format!("expected {devices} weights, one a device, got {}", weights.len());
                Err(Error::invalid("train.split", message))
            }
            Self::Speed | Self::Even => Ok(vec![1.0; devices]),
        }
    }
}

/// A change of the split.
#[derive(Debug, Clone, PartialEq)]
pub struct Resplit {
    /// Rows a device had of a full batch.
    pub before: Vec<usize>,
    /// Rows it gets from now on.
    pub after: Vec<usize>,
}

/// Who does what of a step with a full batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Rows by device: contiguous, in device order.
    pub(crate) rows: Vec<usize>,
    /// The device that updates each bucket. Today it is the same for all.
    pub(crate) owners: Vec<usize>,
}

impl Plan {
    /// The device that updates `bucket`.
    pub(crate) fn owner(&self, bucket: usize) -> usize {
        self.owners[bucket]
    }

    /// The devices that update, each once (buckets of one owner are neighbours).
    pub(super) fn updating(&self) -> impl Iterator<Item = usize> + '_ {
        self.owners.chunk_by(|a, b| a == b).map(|run| run[0])
    }

    /// The device that updates, as long as it is one for all buckets.
    pub(crate) fn lead(&self) -> usize {
        self.owner(0)
    }

    /// Whether gradients and weights are exchanged where devices have these `rows`: one has rows that does not update
    /// all.
    pub(crate) fn exchanges(&self, rows: &[usize]) -> bool {
        let foreign = |device: usize| self.owners.iter().any(|&owner| owner != device);
        rows.iter().enumerate().any(|(device, &rows)| rows > 0 && foreign(device))
    }

    /// Whether they are in a step with a full batch.
    pub(super) fn is_shared(&self) -> bool {
        self.exchanges(&self.rows)
    }
}
