//! All that an update is made of, the learning rate apart.

use super::groups::{Groups, Treatment};
use super::optimizer::Optimizer;
use crate::error::{Error, Result};
use crate::plan::{Layout, Placed};

/// An optimizer with what goes around it.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateRule {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Parameters that are treated otherwise than the rest.
    pub groups: Groups,
    /// Largest global norm of the averaged gradient; larger ones are scaled down.
    pub clip_norm: Option<f32>,
    /// Decay of a moving average of the weights: a ← d·a + (1 − d)·w after each update (Polyak and Juditsky, 1992, with
    /// weights that fade). It starts as a copy of the weights.
    pub ema_decay: Option<f64>,
}

/// The name, among the moments, of the moving average of the weights.
pub(crate) const AVERAGE: &str = "ema";

impl From<Optimizer> for UpdateRule {
    /// The optimizer alone: no groups, no clipping, no average.
    fn from(optimizer: Optimizer) -> Self {
        Self { optimizer, groups: Groups::default(), clip_norm: None, ema_decay: None }
    }
}

impl UpdateRule {
    /// The same with the averaged gradient clipped to this global norm.
    pub fn clipped(self, norm: f32) -> Self {
        Self { clip_norm: Some(norm), ..self }
    }

    /// Names of the tensors that are kept for each parameter, as checkpoints name them.
    pub fn moments(&self) -> Vec<&'static str> {
        let average = self.ema_decay.map(|_| AVERAGE);
        self.optimizer.moments().iter().copied().chain(average).collect()
    }

    /// Which of the moments is the moving average of the weights, where there is one.
    pub fn average(&self) -> Option<usize> {
        self.ema_decay.map(|_| self.optimizer.moments().len())
    }

    /// What an update does to `parameter`; `None` when it is not updated and no part of the norm.
    pub fn treatment(&self, parameter: &Placed) -> Option<Treatment> {
        self.groups.treatment(&self.optimizer, parameter)
    }

    /// Checks the settings, and that the groups are of parameters of `layout`.
    ///
    /// # Errors
    /// When a setting is outside its range, or a group matches no parameter.
    pub fn check(&self, layout: &Layout) -> Result<()> {
        self.validate()?;
        self.groups.check(layout)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        if let Some(norm) = self.clip_norm.filter(|n| !(n.is_finite() && *n > 0.0)) {
            return Err(Error::invalid("train.clip_norm", format!("expected a finite number above 0, got {norm}")));
        }
        if let Some(decay) = self.ema_decay.filter(|d| !(0.0..1.0).contains(d)) {
            return Err(Error::invalid("optimizer.ema_decay", format!("expected a number in [0, 1), got {decay}")));
        }
        self.optimizer.validate()?;
        self.groups.validate()
    }
}
