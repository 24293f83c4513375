//! A run that goes back and on another way leaves checkpoints behind that are no longer part of it. They have a higher
//! step than those of the new way at first, so the step alone does not say which checkpoint a run goes on from.
//!
//! Each checkpoint holds the number of its timeline, which grows with every way back. One of a lower step and a higher
//! number undoes it. So a single rename, that of the checkpoint which training goes back to, undoes all later ones at
//! once; that they are moved aside afterwards only makes room for new ones of the same steps, and may be interrupted
//! and finished at any time.

use std::path::PathBuf;

use super::atomic::{or_later, remove_folder, rename, sync_folder};
use super::store::{Store, folder_name, parse_step};
use super::{Entry, Snapshot};
use crate::error::Result;

/// Before a checkpoint's name, with the timeline that undid it and a dash in between: set aside.
const UNDONE: &str = ".undone-";

/// A checkpoint's folder under its own name.
#[derive(Debug)]
pub(super) struct Found {
    pub entry: Entry,
    /// `None` where its `state.json` is unreadable.
    pub timeline: Option<u64>,
    /// The timeline that went back to a step before it.
    pub undone_by: Option<u64>,
}

/// Finds which of `all`, which are sorted by step, were undone.
pub(super) fn mark_undone(all: &mut [Found]) {
    let mut newest = 0;
    for found in all {
        found.undone_by = found.timeline.filter(|timeline| *timeline < newest).map(|_| newest);
        newest = newest.max(found.timeline.unwrap_or(0));
    }
}

impl Store {
    /// Saves `snapshot`, which training goes back to, and leaves all checkpoints of later steps behind: they are no
    /// longer listed, and are removed once there is one of a later step than all of them. Stopped at any moment, it has
    /// either happened or not, and no checkpoint is lost. A checkpoint of the same step is replaced and leaves its
    /// score.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub(crate) fn go_back(&self, snapshot: &Snapshot) -> Result<PathBuf> {
        self.clean_up()?;
        let entries = self.list()?;
        let score = entries.iter().find(|entry| entry.step == snapshot.step).and_then(|entry| entry.score);
        let leaves_some = entries.iter().any(|entry| entry.step > snapshot.step);
        let timeline = self.timeline()?.saturating_add(u64::from(leaves_some));
        let path = self.save_in(snapshot, score, timeline)?;
        // Those that cannot be read, too.
        self.set_aside(|found| (found.entry.step > snapshot.step).then_some(timeline))?;
        Ok(path)
    }

    /// The number of the timeline that the newest checkpoint belongs to.
    pub(super) fn timeline(&self) -> Result<u64> {
        Ok(self.found()?.iter().filter_map(|found| found.timeline).max().unwrap_or(0))
    }

    /// Moves checkpoints away that a timeline, which `undone_by` tells, has undone.
    pub(super) fn set_aside(&self, undone_by: impl Fn(&Found) -> Option<u64>) -> Result<()> {
        let mut moved = false;
        for found in self.found()? {
            if let Some(timeline) = undone_by(&found) {
                let name = folder_name(found.entry.step);
                let aside = self.hidden(&format!("{UNDONE}{timeline}-"), &name);
                moved |= or_later(rename(&found.entry.path, &aside))?;
            }
        }
        if moved { sync_folder(self.folder()) } else { Ok(()) }
    }

    /// Removes what was set aside, where all of it is of steps before `step`, which has a checkpoint.
    pub(super) fn forget_undone(&self, step: u64) -> Result<()> {
        let undone = |name: &String| parse_step(name.strip_prefix(UNDONE)?.split_once('-')?.1);
        let aside: Vec<(u64, String)> =
            self.names()?.into_iter().filter_map(|name| Some((undone(&name)?, name))).collect();
        if aside.iter().all(|(undone, _)| *undone < step) {
            for (_, name) in &aside {
                or_later(remove_folder(&self.folder().join(name)))?;
            }
        }
        Ok(())
    }
}
