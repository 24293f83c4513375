//! Files and folders that appear whole or not at all, also across a power cut. Knows bytes and paths, not what is in
//! them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes `bytes` to `path` so that a reader, or a machine that loses power, sees the old content or the new, never a
/// part: a hidden sibling file (`.NAME.tmp`) is written and synced, then renamed over `path`.
///
/// One writer per path at a time. A sibling file that an interrupted call left behind is overwritten by the next.
///
/// # Errors
/// [`Error::Io`] when the file cannot be written; `path` then keeps its old content.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let temporary = sibling(path, "tmp")?;
    let written = write_synced(&temporary, bytes).and_then(|()| rename(&temporary, path));
    if written.is_err() {
        // The error that matters is the first one.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_folder(parent(path))
}

/// [`write_atomic`] for a file that is mapped into memory where it is used, and that may be missing for a moment.
/// Windows does not let such a file be replaced, but renamed: it steps aside (`.NAME.old-1`, …) and is removed by a
/// later call, once nobody uses it any more.
///
/// # Errors
/// As there.
pub(crate) fn replace_mapped(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let mut aside = None;
    for number in (1..10).filter(|_| cfg!(windows)) {
        let old = sibling(path, &format!("old-{number}"))?;
        let _ = fs::remove_file(&old);
        aside = aside.or(Some(old).filter(|old| !old.exists()));
    }
    match (write_atomic(path, bytes), aside) {
        (Err(Error::Io { source, .. }), Some(aside)) if source.kind() == ErrorKind::ResourceBusy => {
            rename(path, &aside)?;
            write_atomic(path, bytes).inspect_err(|_| drop(rename(&aside, path)))
        }
        (written, _) => written,
    }
}

/// `path` with the system's separators alone. Windows knows two, and what a user writes with one and the program goes
/// on with the other would look strange in messages and files.
pub fn native_path(path: impl Into<PathBuf>) -> PathBuf {
    let path = path.into();
    if cfg!(windows) { path.components().collect() } else { path }
}

/// The hidden file `.NAME.END` beside the file `path`.
fn sibling(path: &Path, end: &str) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(Error::io(path)(io::Error::new(ErrorKind::InvalidInput, "not a file name")));
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".");
    hidden.push(end);
    Ok(path.with_file_name(hidden))
}

/// Checks that [`write_atomic`] could write `path` now, for work whose result goes there: nothing is left behind, and a
/// file that is there stays as it is.
///
/// # Errors
/// [`Error::Io`] when it could not: the folder is not there or takes no files, or `path` is read-only or no file.
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let refuse = |kind, message| Err(Error::io(path)(io::Error::new(kind, message)));
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return refuse(ErrorKind::IsADirectory, "expected a file, found a folder"),
        // A device or a pipe would be replaced.
        Ok(found) if !found.is_file() => {
            return refuse(ErrorKind::InvalidInput, "expected a file, found something else");
        }
        Ok(_) => drop(OpenOptions::new().write(true).open(path).map_err(Error::io(path))?),
        Err(_) => {}
    }
    // Another process may be writing the hidden file by now: this one is our own.
    let probe = sibling(path, &format!("{}.probe", std::process::id()))?;
    File::create(&probe).map(drop).and_then(|()| fs::remove_file(&probe)).map_err(Error::file(path))
}

/// Creates or overwrites `path` and waits until its content is on the disk. Not atomic: for files that nobody looks for
/// yet.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        let (front, back) = bytes.split_at(bytes.len() / 2);
        file.write_all(front)?;
        crash::point();
        file.write_all(back)?;
        file.sync_all()
    };
    write().map_err(Error::io(path))?;
    crash::point();
    Ok(())
}

/// Renames a file (replacing the target) or a folder (the target must not exist).
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    patiently(|| fs::rename(from, to)).map_err(Error::io(to))?;
    crash::point();
    Ok(())
}

/// Runs `change`, on Windows several times: a virus scanner or indexer that looks at a new file makes it fail for a
/// moment. An error of the kind [`ErrorKind::ResourceBusy`] says that another program has the file open still, or has
/// mapped it.
fn patiently(change: impl Fn() -> io::Result<()>) -> io::Result<()> {
    /// ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION and ERROR_USER_MAPPED_FILE.
    const IN_USE: [i32; 4] = [5, 32, 33, 1224];
    let mut tries = if cfg!(windows) { 10 } else { 0 };
    while let Err(error) = change() {
        if !(cfg!(windows) && error.raw_os_error().is_some_and(|code| IN_USE.contains(&code))) {
            return Err(error);
        }
        if tries == 0 {
            let message = format!("{error}; another program may have it open");
            return Err(io::Error::new(ErrorKind::ResourceBusy, message));
        }
        tries -= 1;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}

/// `done`, but that another program keeps a file from being changed (on Windows it does by having it open) is only
/// told: what was to go goes later. Whether it is gone.
pub(super) fn or_later(done: Result<()>) -> Result<bool> {
    match done {
        Err(Error::Io { path, source }) if source.kind() == ErrorKind::ResourceBusy => {
            log::warn!("{}: {source}; it goes later", path.display());
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

/// Removes a folder and what is in it; a folder that is not there is fine.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    match patiently(|| fs::remove_dir_all(path)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => {
            crash::point();
            Ok(())
        }
    }
}

/// Waits until the entries of a folder (names created, renamed, removed) are on the disk.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    let synced = open_folder(path).and_then(|folder| folder.sync_all());
    match synced {
        Ok(()) => {}
        // File systems that cannot sync a folder (some network and FUSE mounts) say so in these ways; on Windows a
        // folder handle may also be denied, and NTFS journals names by itself.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
        Err(error) if cfg!(windows) && error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(Error::io(path)(error)),
    }
    crash::point();
    Ok(())
}

#[cfg(windows)]
fn open_folder(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    /// Without it CreateFile refuses folders.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    OpenOptions::new().read(true).write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)
}

#[cfg(not(windows))]
fn open_folder(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// The folder that holds `path`: `.` for a bare name.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Simulated crashes: every effect on the disk is followed by a point at which a test can make the process 'die'. A
/// panic stands for the kill: no code of this module runs during unwinding.
pub(super) mod crash {
    #[cfg(test)]
    thread_local! {
        static POINTS_LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
    }

    /// Dies after `points` more points on this thread; `None` never dies.
    #[cfg(test)]
    pub fn after(points: Option<usize>) {
        POINTS_LEFT.set(points);
    }

    /// A moment at which the process may die.
    pub(crate) fn point() {
        #[cfg(test)]
        match POINTS_LEFT.get() {
            Some(0) => {
                POINTS_LEFT.set(None);
                panic!("simulated crash");
            }
            left => POINTS_LEFT.set(left.map(|n| n - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_everything_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "kept").unwrap();
        check_writable(path("old")).unwrap();
        check_writable(path("new")).unwrap();
        assert_eq!(fs::read_to_string(path("old")).unwrap(), "kept");
        let error = |name: &str| check_writable(path(name)).unwrap_err().to_string();
        for (name, part) in [("none/new", "new: "), ("old/new", "old: expected a folder"), (".", "found a folder")] {
            assert!(error(name).contains(part), "{}", error(name));
        }
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["old"]);
    }
}
