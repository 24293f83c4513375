//! `state.json`: what makes the files of a checkpoint folder one generation. It holds a format version, the length and
//! checksum of each tensor file and a checksum of itself, so that a damaged file or one from another checkpoint is
//! refused instead of trained on. Knows no tensors and no meaning of the caller's state.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sealed::{Broken, seal, unseal};
use super::tensors::read_file;
use crate::error::{Error, Result};

/// File name inside a checkpoint folder.
pub(super) const STATE: &str = "state.json";

/// The format this build writes, and the newest it reads. Raise it when an older build could misread a new checkpoint.
const FORMAT: u64 = 1;

/// The content of `state.json`, less its own checksum.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: u64,
    pub step: u64,
    /// Which of the run's timelines it belongs to: how often training had gone back. Most runs never do.
    #[serde(default, skip_serializing_if = "is_first")]
    pub timeline: u64,
    /// Always finite: JSON has no other numbers.
    pub score: Option<f64>,
    files: BTreeMap<String, Digest>,
    pub state: Value,
}

fn is_first(timeline: &u64) -> bool {
    *timeline == 0
}

/// Length and CRC-32 (IEEE 802.3) of a file: CRC-32 finds every run of up to 32 wrong bits, and damage is what it is
/// for, not forgery.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Digest {
    bytes: u64,
    crc32: String,
}

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc32: format!("{:08x}", crc32fast::hash(bytes)) }
    }
}

impl Manifest {
    /// The manifest of a checkpoint whose files have this content.
    pub(super) fn new(step: u64, timeline: u64, score: Option<f64>, files: &[(&str, &[u8])], state: Value) -> Self {
        Self {
            format: FORMAT,
            step,
            timeline,
            score: score.filter(|score| score.is_finite()),
            files: files.iter().map(|&(name, bytes)| (name.to_owned(), Digest::of(bytes))).collect(),
            state,
        }
    }

    /// The bytes of `state.json`. `path` is only for messages.
    pub(super) fn encode(&self, path: &Path) -> Result<Vec<u8>> {
        let json = |error| Error::checkpoint(path, format!("the run state cannot be written as JSON: {error}"));
        let body = serde_json::to_value(self).map_err(json)?;
        let mut bytes = serde_json::to_vec_pretty(&seal(body)).map_err(json)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads and checks the `state.json` of a checkpoint folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(STATE);
        let bytes = read_file(&path)?;
        let foreign =
            |detail: &str| Error::checkpoint(&path, format!("not the state of an everygpu checkpoint: {detail}"));
        let damaged = "it was damaged or edited after it was written; use another copy or an earlier checkpoint";
        let body: Value = serde_json::from_slice(&bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Eof => {
                Error::checkpoint(&path, "the file is cut short; use another copy or an earlier checkpoint")
            }
            _ => foreign(&error.to_string()),
        })?;
        let format = body.get("format").and_then(Value::as_u64).ok_or_else(|| foreign("it has no format number"))?;
        if format > FORMAT {
            let message = format!("format {format} is newer than this everygpu, which reads up to {FORMAT}; update it");
            return Err(Error::checkpoint(&path, message));
        }
        let body = unseal(body).map_err(|broken| match broken {
            Broken::Open => foreign("it has no checksum"),
            Broken::Damaged => {
                Error::checkpoint(&path, format!("its content does not match its own checksum: {damaged}"))
            }
        })?;
        serde_json::from_value(body).map_err(|error| foreign(&error.to_string()))
    }

    /// Checks that `bytes`, read from `path`, are what this checkpoint's file `name` had when it was saved.
    pub(super) fn verify(&self, name: &str, path: &Path, bytes: &[u8]) -> Result<()> {
        let refuse = |message| Err(Error::checkpoint(path, message));
        let Some(recorded) = self.files.get(name) else {
            return refuse(format!("{STATE} does not list this file: it is not part of this checkpoint"));
        };
        let found = Digest::of(bytes);
        if found.bytes < recorded.bytes {
            return refuse(format!(
                "it has {} bytes, but {} were saved: the file was cut short; use another copy or an earlier checkpoint",
                found.bytes, recorded.bytes
            ));
        }
        if found != *recorded {
            return refuse(format!(
                "its content does not match the checksum in {STATE}: it is damaged or belongs to another checkpoint; use \
                 another copy or an earlier checkpoint"
            ));
        }
        Ok(())
    }
}
