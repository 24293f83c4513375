//! The record's files: the lines in them, and the lock that keeps other processes from writing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use same_file::Handle;
use serde_json::{Value, json};

use super::LOCK;
use crate::checkpoint::write_atomic;
use crate::error::{Error, Result};
use crate::file;
use crate::train::{EpochRecord, StepRecord, Tally};

/// The run folder's lock; the system gives it free when the process ends, however it does. The file says for people
/// which process has it.
pub(super) fn lock(folder: &Path) -> Result<Handle> {
    let path = folder.join(LOCK);
    let Some(mut file) = open_alone(&path).map_err(Error::file(&path))? else {
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        let holder: Option<u32> = said.trim().parse().ok();
        let number = holder.map(|number| format!(" ({number})")).unwrap_or_default();
        let message = format!("another process{number} is training in this run folder; wait for it, or stop it first");
        return Err(Error::data(folder, message));
    };
    // A disk that is full is told where it matters.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Handle::from_file(file).map_err(Error::io(&path))
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

/// A file of the record, a JSON object a line. Lines are gathered and written in whole ones only.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    /// Closed while it is written anew: an open file cannot be replaced everywhere.
    file: Option<Handle>,
    /// Bytes that the file has.
    length: u64,
    /// Lines that are not in the file yet.
    pending: Vec<u8>,
    /// Whether the file has lines that may not be on the disk yet.
    unsynced: bool,
}

/// Bytes of lines that are gathered before they are written.
const GATHERED: usize = 8192;

impl Lines {
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let mut lines = Self { path, file: None, length: 0, pending: Vec::new(), unsynced: false };
        lines.reopen()?;
        Ok(lines)
    }

    /// Opens what is at the path, or makes it, to write behind its end.
    fn reopen(&mut self) -> Result<()> {
        let file = File::options().create(true).append(true).open(&self.path).map_err(Error::file(&self.path))?;
        self.length = file.metadata().map_err(Error::io(&self.path))?.len();
        self.file = Some(Handle::from_file(file).map_err(Error::io(&self.path))?);
        Ok(())
    }

    pub(super) fn add(&mut self, line: &Value) -> Result<()> {
        writeln!(self.pending, "{line}").map_err(Error::io(&self.path))?;
        if self.pending.len() < GATHERED { Ok(()) } else { self.flush() }
    }

    /// Hands the gathered lines to the system: all of them or, on a full disk, none.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Some(file) = self.file.as_mut().filter(|_| !self.pending.is_empty()).map(Handle::as_file_mut) else {
            return Ok(());
        };
        if let Err(error) = file.write_all(&self.pending) {
            // The error that matters is the first one.
            let _ = file.set_len(self.length);
            return Err(Error::io(&self.path)(error));
        }
        self.length += self.pending.len() as u64;
        self.pending.clear();
        self.unsynced = true;
        Ok(())
    }

    /// Waits until all lines are on the disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        match self.file.as_ref().filter(|_| self.unsynced) {
            Some(file) => file.as_file().sync_data().map_err(Error::io(&self.path))?,
            None => return Ok(()),
        }
        self.unsynced = false;
        Ok(())
    }

    /// Keeps the lines whose `key` is below `end`: the file is written anew beside itself and renamed.
    pub(super) fn keep_below(&mut self, key: &str, end: u64) -> Result<()> {
        self.flush()?;
        self.file = None;
        keep_lines(&self.path, key, |number, _| number < end)?;
        self.reopen()
    }

    /// Tells where somebody else has removed, replaced or changed the file, and goes on with what is there now.
    pub(super) fn look_after(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let same = is_at(file, &self.path);
        if same && file.as_file().metadata().is_ok_and(|file| file.len() == self.length) {
            return Ok(());
        }
        let what = if same { "changed" } else { "removed or replaced" };
        log::warn!(
            "{}: it was {what} during the training, by somebody else; the record goes on there, and what was lost of it is lost",
            self.path.display()
        );
        self.reopen()
    }

    /// Whether there is no line.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.length == 0
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // At the end of a training that failed; its error is the one that matters.
        let _ = self.flush();
    }
}

/// Whether an open file is the one that is at `path` now.
pub(super) fn is_at(file: &Handle, path: &Path) -> bool {
    // Anything else there might not open at once.
    path.is_file() && Handle::from_path(path).is_ok_and(|there| there == *file)
}

/// Keeps those lines of a JSON-lines file that `keep` says by their number `key` and all that they say, without a last
/// line that was cut short; gives their numbers. Lines that are damaged are told, and the file as it was is kept beside
/// it.
pub(super) fn keep_lines(path: &Path, key: &str, keep: impl Fn(u64, &Value) -> bool) -> Result<Vec<u64>> {
    let bytes = match file::read(path, u64::MAX, "") {
        Ok(bytes) => bytes,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut kept, mut numbers, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let value = serde_json::from_slice::<Value>(line).unwrap_or_default();
        match value.get(key).and_then(Value::as_u64) {
            Some(number) if keep(number, &value) => {
                kept.extend_from_slice(line.trim_ascii_end());
                kept.push(b'\n');
                numbers.push(number);
            }
            Some(_) => {}
            None if line.ends_with(b"\n") => damaged.push(index + 1),
            // The process was ended while it wrote this one.
            None => {}
        }
    }
    if let Some(first) = damaged.first() {
        let aside = path.with_extension("jsonl.damaged");
        write_atomic(&aside, &bytes)?;
        let (count, path, aside) = (damaged.len(), path.display(), aside.display());
        log::warn!("{path}:{first}: {count} damaged line(s) are left out; the file as it was is kept in {aside}");
    }
    if kept != bytes {
        write_atomic(path, &kept)?;
    }
    Ok(numbers)
}

/// Tells where the numbers from 0 to `end` are not the `lines`' numbers `key`, each once.
pub(super) fn tell_gaps(path: &Path, key: &str, lines: &[u64], end: u64) {
    let numbers: BTreeSet<u64> = lines.iter().copied().collect();
    let missing = end - (numbers.len() as u64).min(end);
    if let Some(first) = (0..end).find(|number| !numbers.contains(number)) {
        log::warn!("{}: {missing} of {end} lines are missing, the first is that of {key} {first}", path.display());
    }
    if lines.len() > numbers.len() {
        let twice = lines.len() - numbers.len();
        log::warn!("{}: {twice} line(s) are of a {key} that there is another line of", path.display());
    }
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
