//! What happens to the devices of a run, to be told to the user.

use std::fmt;

use crate::balance::{Handover, Idle};
use crate::error::Error;

/// A device that stopped working.
#[derive(Debug)]
pub struct LostDevice {
    /// Its index among the run's devices.
    pub device: usize,
    /// Its name.
    pub label: String,
    /// Why.
    pub error: Error,
}

impl fmt::Display for LostDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, error, .. } = self;
        let error = error.to_string();
        // Most errors of a device begin with its name.
        let name = if error.starts_with(label.as_str()) { String::new() } else { format!("{label}: ") };
        write!(f, "{name}{error}; it is left out from now on")
    }
}

/// Something that has changed.
#[derive(Debug)]
pub(crate) enum Change {
    Lost(LostDevice),
    /// A lost device, of this name, has come back.
    Rejoined(String),
    /// A device gets no samples from now on.
    Idle(Idle),
    /// A device, of this name, that got no samples gets some again.
    Employed(String),
    /// Another device updates, but for changes that a failure forced.
    Led(Handover),
}
