//! A run's folder: the resolved run file, what the data looked like, one line a step and one an epoch, checkpoints.
//!
//! ```text
//! run.toml        the run file with every default filled in
//! data.json       shapes, classes and scaling, for evaluation and prediction
//! metrics.jsonl   one line a step
//! epochs.jsonl    one line an epoch
//! events.jsonl    devices lost, back, idle or employed again; roll-backs; changes of the split
//! checkpoints/    one folder a checkpoint
//! lock            the number of the process that trains, which holds it
//! ```

mod data_card;
mod lines;
mod observe;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use same_file::Handle;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use data_card::{DataCard, Fingerprint, Samples};

use lines::{Lines, is_at, keep_lines, lock, tell_gaps};

use crate::checkpoint::{Broken, Snapshot, Store, native_path, seal, unseal, write_atomic};
use crate::error::{Error, Result};
use crate::file;
use crate::train::{Position, Trainer};

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

/// The folder of one run. As an [`Observer`](crate::train::Observer) it writes the record of the training that it
/// observes.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    store: Store,
    policy: CheckpointPolicy,
    metrics: Lines,
    epochs: Lines,
    events: Lines,
    interrupted: Arc<AtomicBool>,
    /// Held as long as this is, so that no other process writes to the same record.
    lock: Handle,
    /// When the folder was looked after last.
    looked: Instant,
    /// Steps and epochs at the newest checkpoint: at an epoch's end a step has two states, before and after it.
    saved_at: Option<(u64, u64)>,
    /// Steps and epochs up to which the record is there already: those that a lost lead has training do again.
    recorded: (u64, u64),
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
/// The event that tells of a way back.
const ROLLED_BACK: &str = "rolled back";
const LOCK: &str = "lock";

/// Time between two looks at whether the folder is still what it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
        let parent = &native_path(parent);
        if let Some(file) = parent.ancestors().find(|path| path.is_file()) {
            let message = format!("run folders are made in it, but {} is a file", file.display());
            return Err(Error::invalid("output.dir", message));
        }
        std::fs::create_dir_all(parent).map_err(Error::io(parent))?;
        for number in 1_u64.. {
            let path = parent.join(format!("{name}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let made = lock(&path).and_then(|lock| Self::at(path.clone(), policy, lock));
                    // A full disk, most likely, which is what is to be told.
                    return made.inspect_err(|_| drop(remove_unused(&path)));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(path)(error)),
            }
        }
        unreachable!("some number is free")
    }

    /// Opens the folder of an earlier run to go on from its checkpoint at `position`: later lines of the record are
    /// dropped.
    ///
    /// # Errors
    /// When the record cannot be read or written.
    pub fn reopen(path: &Path, position: &Position, policy: CheckpointPolicy) -> Result<Self> {
        let path = &native_path(path);
        let lock = lock(path)?;
        // Whole or not at all: no handle is open yet that would go on writing to the old files.
        for (name, key, end) in [(METRICS, "step", position.step), (EPOCHS, "epoch", position.epoch)] {
            let file = path.join(name);
            let lines = keep_lines(&file, key, |number, _| number < end)?;
            tell_gaps(&file, key, &lines, end);
        }
        // That training went back to the very step that it goes on from is not to be forgotten.
        let end = |line: &Value| position.step + u64::from(line["event"] == ROLLED_BACK);
        keep_lines(&path.join(EVENTS), "step", |step, line| step < end(line))?;
        let saved_at = Some((position.step, position.epoch));
        Ok(Self { saved_at, ..Self::at(path.to_owned(), policy, lock)? })
    }

    /// Removes the folder again where nothing was trained in it, as when a training fails before its first step;
    /// whether it did. A folder with a checkpoint, with a line about a step or an epoch, or with anything that a run
    /// does not put there, stays as it is.
    ///
    /// # Errors
    /// When it cannot be looked at or removed.
    pub fn discard_if_unused(self) -> Result<bool> {
        if !self.metrics.is_empty() || !self.epochs.is_empty() {
            return Ok(false);
        }
        let path = self.path.clone();
        // Open files cannot be removed everywhere.
        drop(self);
        remove_unused(&path)
    }

    fn at(path: PathBuf, policy: CheckpointPolicy, lock: Handle) -> Result<Self> {
        Ok(Self {
            store: Store::open(Self::checkpoints(&path))?,
            metrics: Lines::open(path.join(METRICS))?,
            epochs: Lines::open(path.join(EPOCHS))?,
            events: Lines::open(path.join(EVENTS))?,
            policy,
            interrupted: Arc::default(),
            lock,
            looked: Instant::now(),
            saved_at: None,
            recorded: (0, 0),
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

    /// Reads a JSON object of a run's folder. One of an earlier everygpu, without a version and a checksum, is taken as
    /// it is.
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
        // A checkpoint that is there after a power cut has its record.
        self.look_after()?;
        self.sync()?;
        let snapshot = trainer.snapshot()?;
        self.look_after()?;
        // Where the folder was taken away meanwhile, that is the reason.
        self.store.save(&snapshot, score).or_else(|error| self.look_after().and(Err(error)))?;
        self.store.prune(self.policy.keep_last, self.policy.keep_best)?;
        self.saved_at = self.saved_at.max(Some(at));
        Ok(())
    }

    /// Saves the snapshot in host memory of a training that no device is left of, where it is later than the last
    /// checkpoint: whether it is. One from before the first step holds nothing.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep(&mut self, snapshot: &Snapshot) -> Result<bool> {
        let saved = self.store.latest()?.map_or(0, |checkpoint| checkpoint.step);
        if snapshot.step <= saved {
            return Ok(false);
        }
        self.look_after()?;
        self.sync()?;
        self.store.save(snapshot, None)?;
        Ok(true)
    }

    /// Checks that the folder is still where it was, and tells where its record is not.
    fn look_after(&mut self) -> Result<()> {
        self.looked = Instant::now();
        if !is_at(&self.lock, &self.path.join(LOCK)) {
            // Checkpoints in a folder without its run file would be of no use, and look as if they were.
            let gone = "the run folder is gone: it was moved, removed or replaced during the training, or its lock was";
            return Err(Error::io(&self.path)(std::io::Error::new(ErrorKind::NotFound, gone)));
        }
        [&mut self.metrics, &mut self.epochs, &mut self.events].into_iter().try_for_each(Lines::look_after)
    }

    /// Waits until the record is on the disk.
    fn sync(&mut self) -> Result<()> {
        [&mut self.metrics, &mut self.epochs, &mut self.events].into_iter().try_for_each(Lines::sync)
    }
}

/// Removes a run folder without a line about a step or an epoch; whether it did. One that holds a checkpoint, or
/// anything that a run does not put there, stays as it is.
fn remove_unused(folder: &Path) -> Result<bool> {
    let checkpoints = RunFolder::checkpoints(folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        let is_own = |name: &&str| path.file_name().is_some_and(|file| file == *name);
        if [RunFolder::CONFIG, RunFolder::DATA, METRICS, EPOCHS, EVENTS, LOCK].iter().any(is_own) {
            files.push(path);
        } else if path != checkpoints {
            return Ok(false);
        }
    }
    // A folder that is not empty is not removed.
    match fs::remove_dir(&checkpoints) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(false),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(checkpoints)(error)),
        _ => {}
    }
    for file in files {
        fs::remove_file(&file).map_err(Error::io(&file))?;
    }
    fs::remove_dir(folder).map_err(Error::io(folder))?;
    Ok(true)
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

    /// A line that says nothing is told and kept elsewhere, and the others stay.
    #[test]
    fn damaged_lines_are_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        let text = b"{\"step\":0}\n{\"step\":1,\"why\":\"\xff\"}\n{\"stop\":2}\n{\"step\":3}\n{\"step\":4}";
        std::fs::write(&path, text).unwrap();
        assert_eq!(keep_lines(&path, "step", |step, _| step < 5).unwrap(), [0, 3, 4]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":0}\n{\"step\":3}\n{\"step\":4}\n");
        assert_eq!(std::fs::read(folder.path().join("metrics.jsonl.damaged")).unwrap(), text);
    }

    #[test]
    fn a_file_that_is_removed_or_cut_short_is_written_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        let mut lines = Lines::open(path.clone()).unwrap();
        let mut add = |number: u32| {
            lines.look_after().unwrap();
            lines.add(&number.into()).unwrap();
            lines.flush().unwrap();
        };
        (0..2).for_each(&mut add);
        // Wine keeps a file that is open until it is closed.
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        (2..4).for_each(&mut add);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n3\n");
        std::fs::write(&path, "2\n").unwrap();
        (4..6).for_each(&mut add);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n4\n5\n");
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
