//! `[devices]` and `[output]`.

use std::path::PathBuf;

use super::reader::{Read, Section, between, list, number, text, whole};
use super::train::{unless, write_unless};
use super::tree::{Value, quoted};
use crate::error::Result;

/// Most logical devices on an adapter: beyond any use, and drivers end the process where they run out of threads.
const MOST_REPLICAS: u32 = 64;

/// `[devices]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicesConfig {
    /// Which adapters, as [`crate::gpu::Adapters::select`] takes it.
    pub adapters: String,
    /// Logical devices on each adapter.
    pub replicas: usize,
    /// Most bytes that a device may allocate.
    pub memory_limit: Option<u64>,
    /// Seconds that a device may take for an answer; `None` for a multiple of its own times.
    pub hang_timeout: Option<f64>,
    /// Seconds that a device may take to be opened or to compile; `None` for a multiple of its own times.
    pub compile_timeout: Option<f64>,
    /// Steps after which a lost device is tried again; 0 for never.
    pub rejoin_after: u64,
}

/// A string, a number, or a list of them.
fn adapters(value: &Value) -> Read<String> {
    let word = |value: &Value| match value {
        Value::Integer(v) if *v >= 0 => Ok(v.to_string()),
        Value::String(v) if !v.trim().is_empty() => Ok(v.clone()),
        _ => Err(String::new()),
    };
    let words = || list(word)(value).map(|words| words.join(","));
    word(value)
        .or_else(|_| words())
        .map_err(|_| "\"auto\", \"all\", a kind, a part of a name, an index, or a list of these".to_owned())
}

/// `"2GiB"`, `"512 MiB"` or a plain number of bytes.
pub(super) fn bytes(value: &Value) -> Read<u64> {
    let size = || match value {
        Value::Integer(v) => u64::try_from(*v).ok(),
        Value::String(v) => {
            let digits = v.find(|c: char| !c.is_ascii_digit()).unwrap_or(v.len());
            let units = [("", 0), ("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)];
            let (_, shift) = units.iter().find(|(unit, _)| *unit == v[digits..].trim())?;
            v[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
        }
        _ => None,
    };
    let fits = |v: &u64| (1..=i64::MAX as u64).contains(v);
    size().filter(fits).ok_or_else(|| "a size such as \"2GiB\" or \"512MiB\" or a number of bytes".to_owned())
}

/// Seconds that a device is waited for.
fn patience(value: &Value) -> Read<f64> {
    number(|v| (0.001..=1e9).contains(&v), "seconds from 0.001 to 1e9")(value)
}

impl DevicesConfig {
    pub(super) fn read(mut section: Section) -> Result<Self> {
        let config = Self {
            adapters: section.get("adapters", "auto".to_owned(), adapters)?,
            replicas: section.get("replicas", 1, between(1, MOST_REPLICAS))?,
            memory_limit: section.get("memory_limit", None, unless("none", bytes))?,
            hang_timeout: section.get("hang_timeout", None, unless("auto", patience))?,
            compile_timeout: section.get("compile_timeout", None, unless("auto", patience))?,
            rejoin_after: section.get("rejoin_after", 200, whole(0))?,
        };
        section.finish()?;
        Ok(config)
    }

    pub(super) fn write(&self) -> Vec<(&'static str, String)> {
        vec![
            ("adapters", quoted(&self.adapters)),
            ("replicas", self.replicas.to_string()),
            ("memory_limit", write_unless("none", &self.memory_limit)),
            ("hang_timeout", write_unless("auto", &self.hang_timeout)),
            ("compile_timeout", write_unless("auto", &self.compile_timeout)),
            ("rejoin_after", self.rejoin_after.to_string()),
        ]
    }
}

/// `[output]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputConfig {
    /// The folder that run folders are made in; relative to the current folder.
    pub dir: PathBuf,
}

impl OutputConfig {
    pub(super) fn read(mut section: Section) -> Result<Self> {
        let dir = section.get("dir", "runs".to_owned(), text)?;
        section.finish()?;
        Ok(Self { dir: dir.into() })
    }

    pub(super) fn write(&self) -> Vec<(&'static str, String)> {
        vec![("dir", quoted(&self.dir.to_string_lossy()))]
    }
}
