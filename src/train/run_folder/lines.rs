//! The record's files: the lines in them, and the lock that keeps other processes from writing.

use std::fs::{File, TryLockError};
use std::path::Path;

use serde_json::{Value, json};

use super::super::record::{EpochRecord, StepRecord, Tally};
use crate::error::{Error, Result};
use crate::file;

/// The run folder's lock; the system gives it free when the process ends, however it does.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::options().create(true).append(true).open(&path).map_err(Error::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = "another process is training in this run folder; wait for it, or stop it first";
            Err(Error::data(folder, message))
        }
        // A file system without locks: then there is nothing to be had from it.
        Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(Error::io(&path)(error)),
    }
}

/// The lines of a JSON-lines file whose `key` is below `end`, without a last line that was cut short; `None` when these are
/// all there is.
pub(super) fn kept_lines(path: &Path, key: &str, end: u64) -> Result<Option<String>> {
    let bytes = match file::read(path, u64::MAX, "") {
        Ok(bytes) => bytes,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    let number = |line: &str| serde_json::from_str::<Value>(line).ok()?.get(key)?.as_u64();
    let kept: String =
        text.lines().filter(|line| number(line).is_some_and(|n| n < end)).flat_map(|line| [line, "\n"]).collect();
    Ok(Some(kept).filter(|kept| kept.as_bytes() != bytes))
}

pub(super) fn step_line(r: &StepRecord) -> Value {
    json!({
        "step": r.step,
        "epoch": r.epoch,
        "samples": r.samples,
        "loss": r.loss,
        "accuracy": r.accuracy,
        "lr": r.learning_rate,
        "gradient_norm": r.gradient_norm,
        "applied": r.applied,
        "unapplied": r.unapplied.map(|why| why.to_string()),
        "shards": r.shards,
        "seconds": {
            "step": r.seconds,
            "gradients": r.phases.gradients,
            "update": r.phases.update,
            "busy": r.busy,
            "kernels": r.kernels,
        },
    })
}

pub(super) fn epoch_line(r: &EpochRecord) -> Value {
    let tally = |t: &Tally| json!({ "loss": t.loss(), "accuracy": t.accuracy() });
    json!({
        "epoch": r.epoch,
        "steps": r.steps,
        "skipped": r.skipped,
        "train": tally(&r.train),
        "validation": r.validation.as_ref().map(tally),
        "seconds": r.seconds,
        "samples_per_second": r.samples_per_second,
    })
}
