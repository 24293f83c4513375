//! Loss spikes: a step whose loss is far above recent ones, from a broken sample or weights that are about to diverge.
//! It is seen before the step's update is applied, since the loss comes with the gradients.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What to do about a loss spike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLossSpike {
    /// Nothing.
    #[default]
    Ignore,
    /// The step's update is not applied.
    Skip,
    /// Training goes back to the last snapshot in host memory and leaves out the batches from there to the spike, as
    /// Chowdhery et al. did ("PaLM: scaling language modeling with pathways", 2022): what led to it came before it.
    RollBack,
}

/// What counts as a spike, and what is done about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpikePolicy {
    /// What is done.
    pub action: OnLossSpike,
    /// Deviations above the recent mean from which a loss is a spike.
    pub threshold: f64,
    /// Steps before the first that can be one.
    pub warmup: u64,
}

impl Default for SpikePolicy {
    fn default() -> Self {
        Self { action: OnLossSpike::Ignore, threshold: 6.0, warmup: 50 }
    }
}

impl SpikePolicy {
    /// Checks the settings.
    ///
    /// # Errors
    /// When the threshold is not a number above 0, or there are no snapshots to go back to.
    pub fn validate(&self, snapshot_every: u64) -> Result<()> {
        if !(self.threshold.is_finite() && self.threshold > 0.0) {
            let message = format!("expected a finite number above 0, got {}", self.threshold);
            return Err(Error::invalid("train.spike_threshold", message));
        }
        if self.action == OnLossSpike::RollBack && snapshot_every == 0 {
            let message = "expected 1 or more with on_loss_spike = \"roll-back\", which goes back to a snapshot, got 0";
            return Err(Error::invalid("train.snapshot_every", message));
        }
        Ok(())
    }
}

/// Weight of the latest loss in the means, once there are enough.
const NEWEST: f64 = 0.02;
/// A normal distribution's deviation in units of its mean absolute deviation: √(π/2).
const NORMAL: f64 = 1.253_314;
/// Least deviation that is believed, as a part of the mean.
const LEAST: f64 = 0.01;

/// The recent losses: means that fade with age, in which a spike counts as no more than its limit, so that one spike
/// does not hide the next, and a loss that has risen for good is taken as such in the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LossWindow {
    count: u64,
    mean: f64,
    /// Mean absolute deviation.
    spread: f64,
}

impl LossWindow {
    /// Losses that were noted.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The loss from which a step of this `part` of a full batch has a spike; `None` while nothing is known.
    pub(super) fn limit(&self, policy: &SpikePolicy, part: f64) -> Option<f64> {
        if policy.action == OnLossSpike::Ignore || self.count < policy.warmup.max(2) {
            return None;
        }
        // The mean over fewer samples scatters more.
        let deviation = (NORMAL * self.spread).max(LEAST * self.mean.abs()) / part.clamp(1e-6, 1.0).sqrt();
        Some(self.mean + policy.threshold * deviation)
    }

    /// Notes a step's loss; `limit` as it was for the step.
    pub(super) fn add(&mut self, loss: f64, limit: Option<f64>) {
        let loss = limit.map_or(loss, |limit| loss.min(limit));
        if !loss.is_finite() {
            return;
        }
        self.count += 1;
        let weight = (1.0 / self.count as f64).max(NEWEST);
        // The first has no mean to deviate from.
        let deviation = if self.count == 1 { 0.0 } else { (loss - self.mean).abs() };
        self.mean += weight * (loss - self.mean);
        self.spread += weight * (deviation - self.spread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    const SKIP: SpikePolicy = SpikePolicy { action: OnLossSpike::Skip, threshold: 6.0, warmup: 50 };

    /// How many of `losses` are spikes.
    fn spikes(losses: impl Iterator<Item = f64>) -> Vec<usize> {
        let mut window = LossWindow::default();
        let spike = |(step, loss): (usize, f64)| {
            let limit = window.limit(&SKIP, 1.0);
            window.add(loss, limit);
            limit.is_some_and(|limit| loss > limit).then_some(step)
        };
        losses.enumerate().filter_map(spike).collect()
    }

    #[test]
    fn a_loss_that_falls_and_scatters_has_no_spike() {
        let mut stream = Stream::new(1, "losses");
        let losses = (0..5000).map(|step| 3.0 * (-f64::from(step) / 300.0).exp() + 0.5 + 0.1 * stream.normal());
        assert_eq!(spikes(losses), [0; 0]);
        assert_eq!(spikes((0..200).map(|_| 1.0)), [0; 0], "nor has a constant one");
    }

    #[test]
    fn every_spike_is_found_and_none_before_the_warm_up() {
        let mut stream = Stream::new(2, "losses");
        let high = |step: usize| if [10, 100, 101, 150, 400].contains(&step) { 2.0 } else { 0.0 };
        let losses: Vec<f64> = (0..500).map(|step| 1.0 + 0.1 * stream.normal() + high(step)).collect();
        assert_eq!(spikes(losses.into_iter()), [100, 101, 150, 400]);
    }

    #[test]
    fn a_loss_that_has_risen_for_good_is_taken_as_such() {
        let mut stream = Stream::new(3, "losses");
        let found = spikes((0..1000).map(|step| if step < 200 { 1.0 } else { 3.0 } + 0.1 * stream.normal()));
        assert!(found.first() == Some(&200) && found.last().is_some_and(|last| *last < 260), "{found:?}");
    }

    #[test]
    fn few_samples_may_scatter_more_and_what_is_not_finite_does_not_count() {
        let mut window = LossWindow::default();
        (0..100).for_each(|step| window.add(1.0 + 0.1 * f64::from(step % 2), None));
        let (whole, part) = (window.limit(&SKIP, 1.0).unwrap(), window.limit(&SKIP, 0.25).unwrap());
        assert!((part - window.mean) / (whole - window.mean) > 1.99);
        let before = window.clone();
        window.add(f64::NAN, None);
        window.add(f64::INFINITY, None);
        assert_eq!(window, before);
        assert_eq!(window.limit(&SpikePolicy::default(), 1.0), None, "ignored");
    }
}
