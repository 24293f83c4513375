//! The record's files: the lines in them, and the lock that keeps other processes from writing.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::super::record::{EpochRecord, StepRecord, Tally};
use crate::error::{Error, Result};

/// The run folder's lock; the system gives it free when the process ends, however it does. The file says for people which process
/// has it.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let Some(mut file) = open_alone(&path).map_err(Error::file(&path))? else {
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        let holder: Option<u32> = said.trim().parse().ok();
        let number = holder.map(|number| format!(" ({number})")).unwrap_or_default();
        let message = format!("another process{number} is training in this run folder; wait for it, or stop it first");
        return Err(Error::data(folder, message));
    };
    // A disk that is full is told where it matters.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Opens a file to be written by this process alone; `None` while another process has it so. Others may read it.
#[cfg(not(windows))]
fn open_alone(path: &Path) -> io::Result<Option<File>> {
    use std::fs::TryLockError;
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        // A file system without locks: then there is nothing to be had from it.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Some(file)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The same where a lock would keep others from reading, too: they may open it to read only.
#[cfg(windows)]
fn open_alone(path: &Path) -> io::Result<Option<File>> {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_SHARE_READ: u32 = 1;
    const ERROR_SHARING_VIOLATION: i32 = 32;
    match File::options().create(true).truncate(false).write(true).share_mode(FILE_SHARE_READ).open(path) {
        Err(error) if error.raw_os_error() == Some(ERROR_SHARING_VIOLATION) => Ok(None),
        opened => opened.map(Some),
    }
}

/// The lines of a JSON-lines file whose `key` is below `end`, without a last line that was cut short; `None` when these are
/// all there is.
pub(super) fn kept_lines(path: &Path, key: &str, end: u64) -> Result<Option<String>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(path)(error)),
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
