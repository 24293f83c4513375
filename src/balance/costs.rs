//! The cost model: how long a step by a plan takes. That is the longest of the devices' own times, and an overhead, the
//! update and the exchange of gradients and weights, which goes by who updates and by whether there is an exchange.

use super::measured::Line;
use super::plan::Plan;
use super::profile::{Devices, Profile};

/// What is known of the devices, and of what steps cost under them.
pub(super) struct Costs<'a> {
    devices: &'a Devices<'a>,
    /// By device, as far as known.
    pub(super) lines: Vec<Option<Line>>,
    /// The devices, the one that updates now first.
    order: Vec<usize>,
}

impl<'a> Costs<'a> {
    pub(super) fn new(devices: &'a Devices<'a>, lead: usize) -> Self {
        let lines = devices.iter().map(|device| device.and_then(Profile::line)).collect();
        let order = std::iter::once(lead).chain((0..devices.len()).filter(|&device| device != lead)).collect();
        Self { devices, lines, order }
    }

    /// Seconds of a step, with the longest overhead of those that update. What nobody knows of it is taken for nothing:
    /// so it is tried, and becomes known.
    pub(super) fn step(&self, plan: &Plan) -> f64 {
        let overhead = |owner: usize| self.overhead(owner, plan.is_shared()).unwrap_or(0.0);
        self.finish(&plan.rows) + plan.updating().map(overhead).fold(0.0, f64::max)
    }

    /// Seconds after which the last device is done with its rows.
    pub(super) fn finish(&self, rows: &[usize]) -> f64 {
        let time = |(line, &rows): (&Option<Line>, &usize)| match line {
            Some((a, b)) if rows > 0 => a + b * rows as f64,
            _ => 0.0,
        };
        self.lines.iter().zip(rows).map(time).fold(0.0, f64::max)
    }

    /// Seconds of a step, `shared` or not, beside the devices' own times, where `lead` updates: as measured, or another
    /// device's, but for the difference between their updates.
    pub(super) fn overhead(&self, lead: usize, shared: bool) -> Option<f64> {
        let measured = |device: usize| self.devices[device]?.overhead(shared);
        measured(lead).or_else(|| {
            let (other, seconds) = self.order.iter().find_map(|&other| Some((other, measured(other)?)))?;
            let difference = || Some(self.update(lead)? - self.update(other)?);
            Some((seconds + difference().unwrap_or(0.0)).max(0.0))
        })
    }

    /// Seconds of an update by `device`: as measured, or as much faster than another device's as it computes faster.
    pub(super) fn update(&self, device: usize) -> Option<f64> {
        let measured = |device: usize| self.devices[device]?.update();
        let each = |device: usize| self.lines[device].map(|(_, each)| each).filter(|each| *each > 0.0);
        measured(device).or_else(|| {
            let scaled = |&other: &usize| Some(measured(other)? * each(device)? / each(other)?);
            self.order.iter().find_map(scaled)
        })
    }

    /// The devices that may update: those with the memory whose speed is known, and the one that does.
    pub(super) fn owners(&self) -> impl Iterator<Item = usize> + '_ {
        let may = |device: usize| self.devices[device].is_some_and(Profile::can_update) && self.lines[device].is_some();
        self.order.iter().copied().filter(move |&device| device == self.order[0] || may(device))
    }
}
