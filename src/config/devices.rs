//! `[devices]` and `[output]`.

use std::path::PathBuf;
use std::time::Duration;

use super::fields::Fields;
use super::sizes::bytes;
use super::tree::{Value, quoted};
use super::values::{Form, amount, either, list, text, unless, whole};
use crate::checkpoint::native_path;
use crate::train::Endurance;

/// Most logical devices on an adapter: beyond any use, and drivers end the process where they run out of threads.
const MOST_REPLICAS: u32 = 64;

/// `[devices]`, but for when one is given up.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicesConfig {
    /// Which adapters, as [`crate::gpu::Adapters::select`] takes it.
    pub adapters: String,
    /// Logical devices on each adapter.
    pub replicas: usize,
    /// Most bytes that a device may allocate.
    pub memory_limit: Option<u64>,
}

impl Default for DevicesConfig {
    fn default() -> Self {
        Self { adapters: "auto".to_owned(), replicas: 1, memory_limit: None }
    }
}

/// A string, a number, or a list of them.
fn adapters() -> Form<String> {
    let word = || {
        let read = |value: &Value| match value {
            Value::Integer(v) if *v >= 0 => Some(v.to_string()),
            Value::String(v) if !v.trim().is_empty() => Some(v.clone()),
            _ => None,
        };
        Form::plain("", read).written(|words| quoted(words))
    };
    let words = list(word()).map(|words| words.join(","), |joined| vec![joined.clone()]);
    either(words, "", word()).described("\"auto\", \"all\", a kind, a part of a name, an index, or a list of these")
}

/// Seconds that a device is waited for.
fn patience() -> Form<Option<Duration>> {
    // Quotients of whole numbers are the nearest to what was given.
    let seconds = |time: &Duration| time.as_nanos() as f64 / 1e9;
    unless("auto", amount("seconds", 0.001..=1e9).map(Duration::from_secs_f64, seconds))
}

impl DevicesConfig {
    /// The section's fields.
    pub(super) fn fields(&mut self, endurance: &mut Endurance, f: &mut Fields<'_>) {
        f.field("adapters", "Which adapters", adapters(), &mut self.adapters);
        f.field("replicas", "Logical devices on each adapter", whole(1..=MOST_REPLICAS), &mut self.replicas);
        let limit = &mut self.memory_limit;
        f.field("memory_limit", "Most bytes that a device may allocate", unless("none", bytes()), limit);
        let hang = &mut endurance.hang_timeout;
        f.field("hang_timeout", "Seconds that a device may take for an answer", patience(), hang);
        let compile = &mut endurance.compile_timeout;
        f.field("compile_timeout", "The same where it is opened or may compile", patience(), compile);
        let rejoin = &mut endurance.rejoin_after;
        f.field("rejoin_after", "Steps after which a lost device is tried again; 0: never", whole(0..), rejoin);
    }
}

/// `[output]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputConfig {
    /// The folder that run folders are made in; relative to the current folder.
    pub dir: PathBuf,
}

impl OutputConfig {
    /// The section's field.
    pub(super) fn fields(&mut self, f: &mut Fields<'_>) {
        let folder = text().map(native_path, |path| path.to_string_lossy().into_owned());
        f.field("dir", "The folder that run folders are made in", folder, &mut self.dir);
    }
}
