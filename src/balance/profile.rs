//! What is known of one device.

use super::measured::{Line, Recent, SpeedModel};
use super::pause::Pause;

/// The devices of a run, those that are absent as `None`.
pub(crate) type Devices<'a> = [Option<&'a Profile>];

/// What is known of one device by its own measurements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Profile {
    speed: SpeedModel,
    /// Seconds of an update that it applied, weights handed to the others included.
    update: Recent,
    /// Seconds of a step beside the longest of the devices' own times while this one applied the updates: of steps that
    /// it did alone, and of shared ones, in which gradients and weights are exchanged.
    overhead: [Recent; 2],
    /// It has not enough memory for the optimizer's state.
    refused: bool,
    pub(super) pause: Pause,
}

impl Profile {
    /// Notes that it took `seconds` for `rows` rows.
    pub(crate) fn observe(&mut self, rows: usize, seconds: f64) {
        self.speed.observe(rows, seconds);
    }

    /// The same for a device that is not as fast as it was: what was measured before is forgotten.
    pub(super) fn observe_anew(&mut self, rows: usize, seconds: f64) {
        self.speed = SpeedModel::default();
        self.observe(rows, seconds);
    }

    /// Notes a step, `shared` or not, in which it applied the update: in `update` seconds, and `overhead` seconds were
    /// spent beside the longest of the devices' own times.
    pub(crate) fn observe_update(&mut self, shared: bool, update: f64, overhead: f64) {
        self.update.add(update);
        self.overhead[usize::from(shared)].add(overhead.max(0.0));
    }

    /// It had samples in a step of its own right.
    pub(crate) fn worked(&mut self) {
        self.pause = Pause::default();
    }

    /// It has not enough memory to be measured while it has no samples.
    pub(crate) fn refuse_probe(&mut self) {
        self.pause.restart(false, 0);
    }

    /// It has not enough memory to apply updates, and is not asked again.
    pub(crate) fn refuse_updates(&mut self) {
        self.refused = true;
    }

    pub(super) fn can_update(&self) -> bool {
        !self.refused
    }

    /// (a, b): it takes a + b·n seconds for n rows; `None` before it was measured often enough.
    pub(super) fn line(&self) -> Option<Line> {
        self.speed.line()
    }

    /// Seconds that it is expected to take for `rows` rows.
    pub(crate) fn predict(&self, rows: usize) -> Option<f64> {
        self.line().map(|(a, b)| if rows == 0 { 0.0 } else { a + b * rows as f64 })
    }

    pub(super) fn update(&self) -> Option<f64> {
        self.update.median()
    }

    pub(super) fn overhead(&self, shared: bool) -> Option<f64> {
        self.overhead[usize::from(shared)].median()
    }
}
