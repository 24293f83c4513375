//! All that an update is made of, the learning rate apart.

use super::groups::{Groups, Treatment};
use super::optimizer::Optimizer;
use crate::error::{Error, Result};
use crate::plan::Placed;

/// An optimizer with what goes around it.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateRule {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Parameters that are treated otherwise than the rest.
    pub groups: Groups,
    /// Largest global norm of the averaged gradient; larger ones are scaled down.
    pub clip_norm: Option<f32>,
}

impl From<Optimizer> for UpdateRule {
    /// The optimizer alone: no groups, no clipping.
    fn from(optimizer: Optimizer) -> Self {
        Self { optimizer, groups: Groups::default(), clip_norm: None }
    }
}

impl UpdateRule {
    /// The same with the averaged gradient clipped to this global norm.
    pub fn clipped(self, norm: f32) -> Self {
        Self { clip_norm: Some(norm), ..self }
    }

    /// Names of the tensors that are kept for each parameter, as checkpoints name them.
    pub fn moments(&self) -> Vec<&'static str> {
        self.optimizer.moments().to_vec()
    }

    /// What an update does to `parameter`; `None` when it is not updated and no part of the norm.
    pub fn treatment(&self, parameter: &Placed) -> Option<Treatment> {
        self.groups.treatment(&self.optimizer, parameter)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        if let Some(norm) = self.clip_norm.filter(|n| !(n.is_finite() && *n > 0.0)) {
            return Err(Error::invalid("train.clip_norm", format!("expected a finite number above 0, got {norm}")));
        }
        self.optimizer.validate()?;
        self.groups.validate()
    }
}
