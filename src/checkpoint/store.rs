//! The folder of a run's checkpoints: saving, finding, loading and pruning them. Knows folders and generations; not
//! what is in the tensors or the state.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::atomic::{native_path, or_later, parent, remove_folder, rename, sync_folder, write_synced};
use super::manifest::{Manifest, STATE};
use super::tensors::{decode, encode, read_file};
use super::timeline::{Found, mark_undone};
use super::{Entry, Snapshot};
use crate::error::{Error, Result};

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";

/// Every complete checkpoint's folder is this and the step, at least eight digits.
const PREFIX: &str = "step-";
/// Before a checkpoint's name: being written.
const TEMPORARY: &str = ".tmp-";
/// Before a checkpoint's name: moved away to be replaced. The checkpoint itself as long as its replacement is not
/// there.
const REPLACED: &str = ".old-";
/// Before a checkpoint's name: being removed.
const DISCARDED: &str = ".del-";

/// The checkpoints of one run, in one folder.
///
/// One process may save and prune at a time; others may list and load meanwhile, since those two change nothing.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in `folder`, usually `RUN_DIR/checkpoints`. The folder need not exist, but the one that it is in: the
    /// first save creates it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when `folder` is something other than a folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = native_path(folder);
        if let Some(file) = folder.ancestors().find(|path| path.is_file()) {
            return Err(Error::checkpoint(file, "expected the folder that holds a run's checkpoints, found a file"));
        }
        Ok(Self { folder })
    }

    /// The folder given to [`Store::open`].
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves a checkpoint and returns its folder. When it returns, the checkpoint is on the disk; at any moment before,
    /// the earlier ones are untouched. Saving a step again replaces its checkpoint. Leftovers of interrupted saves are
    /// removed.
    ///
    /// `score` says how good it is, higher being better ([`Store::best`]); one that is not finite counts as none.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be written (disk full, no permission); [`Error::Checkpoint`] when a tensor
    /// has a name that the format keeps for itself.
    pub fn save(&self, snapshot: &Snapshot, score: Option<f64>) -> Result<PathBuf> {
        self.clean_up()?;
        let path = self.save_in(snapshot, score, self.timeline()?)?;
        self.forget_undone(snapshot.step)?;
        Ok(path)
    }

    /// Saves a checkpoint of the timeline of this number. Earlier leftovers have been removed.
    pub(super) fn save_in(&self, snapshot: &Snapshot, score: Option<f64>, timeline: u64) -> Result<PathBuf> {
        let Snapshot { step, weights, optimizer, state } = snapshot;
        let name = folder_name(*step);
        let (target, temporary) = (self.folder.join(&name), self.hidden(TEMPORARY, &name));
        self.create_folder()?;

        let saved = (|| {
            fs::create_dir(&temporary).map_err(Error::io(&temporary))?;
            let step_text = step.to_string();
            let encoded = |name, tensors| {
                let path = temporary.join(name);
                let bytes = encode(&target.join(name), tensors, &[("step", &step_text)])?;
                write_synced(&path, &bytes)?;
                Ok::<_, Error>(bytes)
            };
            let weights = encoded(WEIGHTS, weights)?;
            let optimizer = encoded(OPTIMIZER, optimizer)?;
            let files: [(&str, &[u8]); 2] = [(WEIGHTS, &weights), (OPTIMIZER, &optimizer)];
            let manifest = Manifest::new(*step, timeline, score, &files, state.clone());
            write_synced(&temporary.join(STATE), &manifest.encode(&target.join(STATE))?)?;
            sync_folder(&temporary)?;
            self.replace(&temporary, &target, &self.hidden(REPLACED, &name))
        })();
        if saved.is_err() {
            // The error that matters is the first one; the next save tries again.
            let _ = remove_folder(&temporary);
        }
        saved.map(|()| target)
    }

    /// All checkpoints, by rising step, without those that `Store::go_back` left behind. One whose `state.json` is
    /// unreadable is listed too, so that it is not passed over in silence: loading it says what is wrong. Changes
    /// nothing on the disk.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be read; one that does not exist holds no checkpoints.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let current = |found: Found| found.undone_by.is_none().then_some(found.entry);
        Ok(self.found()?.into_iter().filter_map(current).collect())
    }

    /// All checkpoints that have not been set aside, by rising step.
    pub(super) fn found(&self) -> Result<Vec<Found>> {
        let mut all: Vec<Found> = Vec::new();
        for name in self.names()? {
            let (step, current) = match (parse_step(&name), name.strip_prefix(REPLACED).and_then(parse_step)) {
                (Some(step), _) => (step, true),
                // A crash between the two renames of a replacement: the old one still counts.
                (_, Some(step)) => (step, !self.folder.join(folder_name(step)).exists()),
                _ => continue,
            };
            if current {
                let path = self.folder.join(&name);
                let (timeline, score) = Manifest::read(&path).ok().map(|m| (m.timeline, m.score)).unzip();
                let entry = Entry { step, path, score: score.flatten() };
                all.push(Found { entry, timeline, undone_by: None });
            }
        }
        all.sort_by_key(|found| found.entry.step);
        mark_undone(&mut all);
        Ok(all)
    }

    /// The checkpoint with the highest step, if there is one.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn latest(&self) -> Result<Option<Entry>> {
        Ok(self.list()?.pop())
    }

    /// The checkpoint with the highest score, the earliest of equals; `None` when none has a score.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn best(&self) -> Result<Option<Entry>> {
        let entries = self.list()?;
        // It may have been the best: not to be passed over in silence.
        for error in entries.iter().filter_map(|entry| Manifest::read(&entry.path).err()) {
            log::warn!("{error}");
        }
        Ok(by_score(entries).into_iter().next())
    }

    /// Reads and checks the checkpoint in the folder `path` (of this store or any other).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is none, it is of a newer format, or a file is missing, foreign, cut short,
    /// damaged or from another checkpoint; [`Error::Io`] when a file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Snapshot> {
        let path = path.as_ref();
        if !path.is_dir() {
            let found = if path.exists() { "found a file" } else { "there is no such folder" };
            return Err(Error::checkpoint(path, format!("expected a checkpoint's folder (step-…), but {found}")));
        }
        let manifest = Manifest::read(path)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(step) =
            parse_step(name.strip_prefix(REPLACED).unwrap_or(name)).filter(|step| *step != manifest.step)
        {
            let message = format!(
                "its folder's name says step {step}, {STATE} says step {}: it was renamed or copied; its name would be {}",
                manifest.step,
                folder_name(manifest.step)
            );
            return Err(Error::checkpoint(path, message));
        }
        let tensors = |name| {
            let file = path.join(name);
            let bytes = read_file(&file)?;
            manifest.verify(name, &file, &bytes)?;
            decode(&file, &bytes)
        };
        let (weights, optimizer) = (tensors(WEIGHTS)?, tensors(OPTIMIZER)?);
        Ok(Snapshot { step: manifest.step, weights, optimizer, state: manifest.state })
    }

    /// Removes all but the `keep_last` newest and the `keep_best` highest-scored checkpoints; the newest always stays.
    /// Returns the folders removed.
    ///
    /// # Errors
    /// [`Error::Io`] when a folder cannot be removed.
    pub fn prune(&self, keep_last: usize, keep_best: usize) -> Result<Vec<PathBuf>> {
        self.clean_up()?;
        let entries = self.list()?;
        let oldest_kept = entries.len().saturating_sub(keep_last.max(1));
        let mut kept: Vec<u64> = entries[oldest_kept..].iter().map(|entry| entry.step).collect();
        kept.extend(by_score(entries.clone()).iter().take(keep_best).map(|entry| entry.step));
        let mut removed = Vec::new();
        for entry in entries.into_iter().filter(|entry| !kept.contains(&entry.step)) {
            // Out of sight first: a removal that is interrupted must not leave half a checkpoint.
            let discarded = self.hidden(DISCARDED, &folder_name(entry.step));
            if or_later(rename(&entry.path, &discarded).and_then(|()| remove_folder(&discarded)))? {
                removed.push(entry.path);
            }
        }
        Ok(removed)
    }

    /// Puts the complete folder `new` in the place of `target`. A folder cannot be renamed over another, so an existing
    /// one steps aside first; in between, `list` and `clean_up` find it under its other name.
    fn replace(&self, new: &Path, target: &Path, aside: &Path) -> Result<()> {
        let replacing = target.exists();
        if replacing {
            rename(target, aside)?;
        }
        if let Err(error) = rename(new, target) {
            if replacing {
                let _ = rename(aside, target);
            }
            return Err(error);
        }
        sync_folder(&self.folder)?;
        if replacing {
            or_later(remove_folder(aside))?;
        }
        Ok(())
    }

    /// Finishes or undoes what an interrupted save, prune or way back left.
    pub(super) fn clean_up(&self) -> Result<()> {
        for name in self.names()? {
            let path = self.folder.join(&name);
            if let Some(original) = name.strip_prefix(REPLACED).filter(|original| parse_step(original).is_some()) {
                let target = self.folder.join(original);
                if target.exists() { or_later(remove_folder(&path)).map(drop)? } else { rename(&path, &target)? }
            } else if [TEMPORARY, DISCARDED].iter().any(|p| name.strip_prefix(p).and_then(parse_step).is_some()) {
                or_later(remove_folder(&path))?;
            }
        }
        self.set_aside(|found| found.undone_by)
    }

    /// Creates the store's folder where it is missing, so that a power cut does not lose the folder's own name. What it
    /// is in is not created: a run folder that was moved away must not come back with one checkpoint in it.
    fn create_folder(&self) -> Result<()> {
        if !self.folder.is_dir() {
            fs::create_dir(&self.folder).map_err(Error::io(&self.folder))?;
            sync_folder(parent(&self.folder))?;
        }
        Ok(())
    }

    /// Names of the folders inside the store's folder.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::io(&self.folder))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io(&self.folder))?;
            if entry.path().is_dir() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    pub(super) fn hidden(&self, mark: &str, name: &str) -> PathBuf {
        self.folder.join(format!("{mark}{name}"))
    }
}

pub(super) fn folder_name(step: u64) -> String {
    format!("{PREFIX}{step:08}")
}

/// The step of a checkpoint's folder; `None` for any other name, `step-7 (copy)` among them.
pub(super) fn parse_step(name: &str) -> Option<u64> {
    let step = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name == folder_name(step)).then_some(step)
}

/// Those with a score, best first, the earlier of equals first.
fn by_score(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.score.is_some());
    entries
        .sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(std::cmp::Ordering::Equal).then(a.step.cmp(&b.step)));
    entries
}
