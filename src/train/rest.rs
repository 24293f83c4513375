//! What a step takes beside the devices' own work: the update, and the exchange of gradients and weights where others than
//! the lead have samples.

use super::recent::Recent;

/// Seconds of a step beside the longest of the devices' own times.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rest {
    /// With exchange.
    shared: Recent,
    /// The lead alone.
    alone: Recent,
}

impl Rest {
    pub(super) fn observe(&mut self, shards: &[usize], lead: usize, seconds: f64) {
        let rest = if exchanges(shards, lead) { &mut self.shared } else { &mut self.alone };
        rest.add(seconds.max(0.0));
    }

    /// Seconds to expect. What is not known is taken for nothing: so it is tried, and becomes known.
    pub(super) fn seconds(&self, shards: &[usize], lead: usize) -> f64 {
        let rest = if exchanges(shards, lead) { &self.shared } else { &self.alone };
        rest.median().unwrap_or(0.0)
    }

    /// Seconds with exchange, once known.
    pub(super) fn exchange(&self) -> Option<f64> {
        self.shared.median()
    }
}

/// What it would cost to share a batch that the lead does alone.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sharing {
    /// Seconds of a step in which all devices that help take part.
    pub together: f64,
    /// Seconds of these for the update and for exchanging gradients and weights.
    pub exchange: f64,
    /// Seconds of a step by the lead alone.
    pub alone: f64,
}

/// Whether gradients and weights are exchanged: a device has rows that does not lead.
pub(super) fn exchanges(shards: &[usize], lead: usize) -> bool {
    shards.iter().enumerate().any(|(index, &rows)| rows > 0 && index != lead)
}
