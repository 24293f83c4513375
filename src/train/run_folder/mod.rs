//! A run's folder: the resolved run file, what the data looked like, one line a step and one an epoch, checkpoints.
//!
//! ```text
//! run.toml        the run file with every default filled in
//! data.json       shapes, classes and scaling, for evaluation and prediction
//! metrics.jsonl   one line a step
//! epochs.jsonl    one line an epoch
//! events.jsonl    devices lost, back, idle or employed again; roll-backs; changes of the split
//! checkpoints/    one folder a checkpoint
//! lock            held by the process that trains
//! ```

mod lines;
mod observe;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use lines::{kept_lines, lock};

use super::state::Position;
use super::trainer::Trainer;
use crate::checkpoint::{Broken, Store, seal, unseal, write_atomic};
use crate::error::{Error, Result};
use crate::file;

/// When checkpoints are written and which are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// Steps between two checkpoints, beside the one after each epoch; 0 for none.
    pub every: u64,
    /// Latest ones that are kept.
    pub keep_last: usize,
    /// Best ones, by validation accuracy or loss, that are kept beside them.
    pub keep_best: usize,
}

/// See the module's documentation. As an [`Observer`](super::Observer) it writes the record of the training that it observes.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    store: Store,
    policy: CheckpointPolicy,
    metrics: BufWriter<File>,
    epochs: BufWriter<File>,
    events: BufWriter<File>,
    interrupted: Arc<AtomicBool>,
    /// Held as long as this is, so that no other process writes to the same record.
    _lock: File,
    /// Steps and epochs at the last save: at an epoch's end a step has two states, before and after it.
    saved_at: Option<(u64, u64)>,
}

/// Field of a JSON object that holds its version.
const VERSION: &str = "version";
/// The version that this build writes, and the latest it reads. Raise it when an older build could misread a new file.
const JSON_VERSION: u64 = 1;
/// Bytes that no JSON object of a run has.
const MOST_JSON: u64 = 1 << 32;

const METRICS: &str = "metrics.jsonl";
const EPOCHS: &str = "epochs.jsonl";
const EVENTS: &str = "events.jsonl";

impl RunFolder {
    /// The resolved run file's name in the folder.
    pub const CONFIG: &'static str = "run.toml";
    /// The data card's name in the folder.
    pub const DATA: &'static str = "data.json";

    /// The folder of a run's checkpoints.
    pub fn checkpoints(folder: &Path) -> PathBuf {
        folder.join("checkpoints")
    }

    /// Makes the first free folder `NAME-1`, `NAME-2`, … in `parent`.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn create(parent: &Path, name: &str, policy: CheckpointPolicy) -> Result<Self> {
        if parent.exists() && !parent.is_dir() {
            let message = format!("run folders are made in it, but {} is a file", parent.display());
            return Err(Error::invalid("output.dir", message));
        }
        std::fs::create_dir_all(parent).map_err(Error::io(parent))?;
        for number in 1_u64.. {
            let path = parent.join(format!("{name}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let lock = lock(&path)?;
                    return Self::at(path, policy, lock);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(path)(error)),
            }
        }
        unreachable!("some number is free")
    }

    /// Opens the folder of an earlier run to go on from its checkpoint at `position`: later lines of the record are dropped.
    ///
    /// # Errors
    /// When the record cannot be read or written.
    pub fn reopen(path: &Path, position: &Position, policy: CheckpointPolicy) -> Result<Self> {
        let lock = lock(path)?;
        for (file, key, end) in Self::records(position) {
            let file = path.join(file);
            // Whole or not at all: no handle is open yet that would go on writing to the old file.
            if let Some(kept) = kept_lines(&file, key, end)? {
                write_atomic(file, kept.as_bytes())?;
            }
        }
        Self::at(path.to_owned(), policy, lock)
    }

    /// The files of the record, and the number that their lines stay below in a run that stands at `position`.
    fn records(position: &Position) -> [(&'static str, &'static str, u64); 3] {
        [(METRICS, "step", position.step), (EPOCHS, "epoch", position.epoch), (EVENTS, "step", position.step)]
    }

    /// Removes the folder again, where a training failed before its first step.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(self) -> Result<()> {
        std::fs::remove_dir_all(&self.path).map_err(Error::io(&self.path))
    }

    fn at(path: PathBuf, policy: CheckpointPolicy, lock: File) -> Result<Self> {
        let append = |name: &str| {
            let file = path.join(name);
            let opened = File::options().create(true).append(true).open(&file).map_err(Error::io(file))?;
            Ok(BufWriter::new(opened))
        };
        Ok(Self {
            store: Store::open(Self::checkpoints(&path))?,
            metrics: append(METRICS)?,
            epochs: append(EPOCHS)?,
            events: append(EVENTS)?,
            policy,
            interrupted: Arc::default(),
            _lock: lock,
            saved_at: None,
            path,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checkpoints.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Set from elsewhere (a Ctrl-C handler), it ends the training after the step, with a checkpoint.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        self.interrupted.clone()
    }

    /// Writes a file of the folder, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        write_atomic(self.path.join(name), text.as_bytes())
    }

    /// Writes a JSON object of the folder, with a version and a checksum.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let cannot = |e: serde_json::Error| Error::data(self.path.join(name), e.to_string());
        let mut body = serde_json::to_value(value).map_err(cannot)?;
        body[VERSION] = JSON_VERSION.into();
        self.write(name, &serde_json::to_string_pretty(&seal(body)).map_err(cannot)?)
    }

    /// Reads a JSON object of a run's folder. One of an earlier everygpu, without a version and a checksum, is taken as it is.
    ///
    /// # Errors
    /// When it is missing, damaged, of a later version, or does not hold such a value.
    pub fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T> {
        let path = folder.join(name);
        let bytes = file::read(&path, MOST_JSON, ", far more than a run writes there")?;
        let foreign = |e: serde_json::Error| Error::data(&path, format!("not what a run writes there: {e}"));
        let body: Value = serde_json::from_slice(&bytes).map_err(foreign)?;
        let version = body.get(VERSION).cloned();
        let body = match (unseal(body.clone()), version.as_ref().and_then(Value::as_u64)) {
            (_, Some(later)) if later > JSON_VERSION => {
                let message = format!(
                    "version {later} is of a later everygpu, this one reads up to {JSON_VERSION}; update everygpu"
                );
                return Err(Error::data(&path, message));
            }
            (Ok(body), Some(_)) => body,
            (Err(Broken::Open), None) if version.is_none() => body,
            _ => {
                let message = "its content does not match its checksum: it was damaged or edited after it was written; \
                               use another copy (or, after a change of your own, take version and crc32 out of it)";
                return Err(Error::data(&path, message));
            }
        };
        serde_json::from_value(body).map_err(foreign)
    }

    /// Saves a checkpoint now, unless this step has one.
    ///
    /// # Errors
    /// When a device fails or the disk does.
    pub fn save(&mut self, trainer: &mut Trainer, score: Option<f64>) -> Result<()> {
        let at = (trainer.position().step, trainer.position().epoch);
        if self.saved_at == Some(at) && score.is_none() {
            return Ok(());
        }
        self.flush()?;
        let snapshot = trainer.snapshot()?;
        if !self.path.is_dir() {
            // Checkpoints in a folder without its run file would be of no use, and look as if they were.
            let gone = "the run folder is gone: it was moved or removed during the training";
            return Err(Error::io(&self.path)(std::io::Error::new(std::io::ErrorKind::NotFound, gone)));
        }
        self.store.save(&snapshot, score)?;
        self.store.prune(self.policy.keep_last, self.policy.keep_best)?;
        self.saved_at = Some(at);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        for (writer, name) in [(&mut self.metrics, METRICS), (&mut self.epochs, EPOCHS), (&mut self.events, EVENTS)] {
            writer.flush().map_err(Error::io(self.path.join(name)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_after_a_checkpoint_and_a_torn_line_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        std::fs::write(&path, "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n{\"ste").unwrap();
        let policy = CheckpointPolicy { every: 0, keep_last: 1, keep_best: 0 };
        let epochs = folder.path().join(EPOCHS);
        std::fs::write(&epochs, "{\"epoch\":0,\"steps\":2}\n{\"epoch\":1,\"steps\":4}\n").unwrap();
        let position = Position { step: 2, ..Position::default() };
        drop(RunFolder::reopen(folder.path(), &position, policy).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":0}\n{\"step\":1}\n");
        // The checkpoint is of the epoch's last step, before its end.
        assert_eq!(std::fs::read_to_string(&epochs).unwrap(), "");
    }

    #[test]
    fn each_run_gets_a_folder_of_its_own() {
        let parent = tempfile::tempdir().unwrap();
        let policy = CheckpointPolicy { every: 0, keep_last: 1, keep_best: 0 };
        let names: Vec<_> =
            (0..2).map(|_| RunFolder::create(parent.path(), "digits", policy).unwrap().path().to_owned()).collect();
        assert_eq!(names, [parent.path().join("digits-1"), parent.path().join("digits-2")]);
    }
}
