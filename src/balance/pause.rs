//! How long a device without samples waits to be measured again.

/// Steps without samples after which a device is measured again, at the earliest.
const EARLIEST: u64 = 200;
/// The same of a device that was never measured: a batch has too few groups for all.
const UNKNOWN: u64 = 10;
/// Doublings of that after probes that found it as slow as before.
const DOUBLINGS: u32 = 5;
/// Part of all steps' time that probes may take.
const COST: f64 = 0.01;

/// A device's steps without samples.
#[derive(Debug, Clone, Default)]
pub(super) struct Pause {
    steps: u64,
    /// Steps after which it is measured.
    wait: u64,
    failures: u32,
}

impl Pause {
    /// Counts a step that took the others `others` seconds; a probe is `expected` to take so many. Whether the pause is
    /// over.
    pub(super) fn is_over(&mut self, expected: Option<f64>, others: f64) -> bool {
        if self.wait == 0 {
            // The first step and one measurement are what a probe takes that finds it as slow as before.
            let cost = 2.0 * (expected.unwrap_or(0.0) - others).max(0.0);
            let earliest = if expected.is_some() { EARLIEST } else { UNKNOWN };
            self.wait = earliest.max(affordable(cost, others));
        }
        self.steps += 1;
        self.steps >= self.wait
    }

    /// Begins anew, of `least` steps or more: the device `gets_samples` now or is as slow as before.
    pub(super) fn restart(&mut self, gets_samples: bool, least: u64) {
        let failures = if gets_samples { 0 } else { (self.failures + 1).min(DOUBLINGS) };
        *self = Self { steps: 0, wait: (EARLIEST << failures).max(least), failures };
    }
}

/// Steps of `step` seconds after which `cost` seconds are [`COST`] of the time.
pub(super) fn affordable(cost: f64, step: f64) -> u64 {
    if step > 0.0 { (cost / (COST * step)).ceil() as u64 } else { 0 }
}
