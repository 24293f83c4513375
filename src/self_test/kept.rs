//! Verdicts on disk: an adapter that has passed is not tested again by the next process, for thirty days, as long as
//! the adapter, its driver and the program are the same. Only "passed" is kept: one that failed is tried at every
//! start.
//!
//! One small file a verdict. Its name is a hash of what it is about, its content the whole of that: a file that was cut
//! short, or damaged, or is of another adapter says nothing. Where the folder cannot be read or written, the test runs.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a verdict holds: a card may have been damaged since.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// How the content of each file begins.
const PASSED: &str = "passed: ";

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

/// A folder of verdicts.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    folder: PathBuf,
    /// What the program is built of, as far as its file tells.
    program: String,
    /// Whether they are written only: each adapter is tested once more.
    anew: bool,
}

/// Has [`usable`](super::usable) keep verdicts in `folder` from now on, in the whole process, and believe those that
/// are there, unless each adapter is to be tested `anew`. Without this call, nothing is read or written. The folder
/// need not exist; verdicts in it that are older than thirty days are removed.
///
/// That the program is another (other kernels, another wgpu) is seen by the size and time of its file. Do not use it
/// where this crate is in a library that is loaded at run time.
pub fn keep_verdicts_in(folder: impl Into<PathBuf>, anew: bool) {
    // Where the file cannot be found, nothing would say that the program has changed.
    let kept = program().map(|program| Kept { folder: folder.into(), program, anew });
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = kept;
}

/// This program's version, and its file's size and time of change.
fn program() -> Option<String> {
    let file = fs::metadata(std::env::current_exe().ok()?).ok()?;
    let changed = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("everygpu {}, {} bytes of {} ns", env!("CARGO_PKG_VERSION"), file.len(), changed.as_nanos()))
}

/// The folder of the process, if it has one.
pub(super) fn kept() -> Option<Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Kept {
    /// Whether what `adapter` describes has passed within the last thirty days.
    pub(super) fn has_passed(&self, adapter: &str) -> bool {
        let (path, content) = self.file(adapter);
        !self.anew && is_young(&path) && read(&path).is_some_and(|found| found == content)
    }

    /// Notes whether it passes: what fails now has no verdict any more.
    pub(super) fn note(&self, adapter: &str, passes: bool) {
        let (path, content) = self.file(adapter);
        let noted = match passes {
            true => self.write(&path, &content),
            false => fs::remove_file(&path).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        if let Err(error) = noted {
            log::debug!("{}: the self-test's verdict is not noted: {error}", path.display());
        }
        if passes {
            self.clean_up();
        }
    }

    /// Writes beside and renames, so that what stands in the file's place (a link, a pipe) is replaced, not written to.
    fn write(&self, path: &Path, content: &str) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let beside = path.with_extension(std::process::id().to_string());
        let written = File::create_new(&beside).and_then(|mut file| file.write_all(content.as_bytes()));
        let renamed = written.and_then(|()| fs::rename(&beside, path));
        if renamed.is_err() {
            let _ = fs::remove_file(&beside);
        }
        renamed
    }

    /// Removes verdicts that are too old to count.
    fn clean_up(&self) {
        for path in fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if !is_young(&path) && read(&path).is_some_and(|content| content.starts_with(PASSED)) {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn file(&self, adapter: &str) -> (PathBuf, String) {
        let content = format!("{PASSED}{adapter}; {}\n", self.program);
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        (self.folder.join(format!("{:016x}", hasher.finish())), content)
    }
}

/// The content of a small regular file: a pipe would be waited for, a device may never end.
fn read(path: &Path) -> Option<String> {
    let is_small = fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() < 10_000);
    is_small.then(|| fs::read_to_string(path).ok()).flatten()
}

/// Whether `path` was written in the last thirty days. What is of the future says nothing.
fn is_young(path: &Path) -> bool {
    let written = fs::symlink_metadata(path).and_then(|file| file.modified());
    written.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < LIFE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(folder: &Path, program: &str) -> Kept {
        Kept { folder: folder.join("self-test"), program: program.to_owned(), anew: false }
    }

    #[test]
    fn a_verdict_is_of_one_adapter_and_one_program() {
        let folder = tempfile::tempdir().unwrap();
        let kept = in_folder(folder.path(), "1");
        assert!(!kept.has_passed("a card"));
        kept.note("a card", true);
        assert!(kept.has_passed("a card") && !kept.has_passed("another card"));
        assert!(!in_folder(folder.path(), "2").has_passed("a card"));
        assert!(!Kept { anew: true, ..kept.clone() }.has_passed("a card"));
        kept.note("another card", true);
        assert!(kept.has_passed("a card") && kept.has_passed("another card"));
        kept.note("a card", false);
        assert!(!kept.has_passed("a card") && kept.has_passed("another card"), "what fails is not trusted again");
        kept.note("a card", false);
    }

    /// A pipe, which nobody writes to, would be waited for.
    #[cfg(unix)]
    #[test]
    fn what_stands_in_a_verdicts_place_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let kept = in_folder(folder.path(), "1");
        let (path, _) = kept.file("a card");
        let other = folder.path().join("other");
        fs::write(&other, "precious").unwrap();
        fs::create_dir(&kept.folder).unwrap();
        let pipe = || {
            let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            // SAFETY: the name ends in a zero, and lives as long as the call.
            assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        };
        let link = |to: &Path| std::os::unix::fs::symlink(to, &path).unwrap();
        let obstacles: [&dyn Fn(); 3] = [&pipe, &|| link(&other), &|| link(Path::new("/dev/zero"))];
        for obstacle in obstacles {
            let _ = fs::remove_file(&path);
            obstacle();
            assert!(!kept.has_passed("a card"));
            kept.note("a card", true);
            assert!(kept.has_passed("a card"));
        }
        assert_eq!(fs::read_to_string(other).unwrap(), "precious");
    }

    #[test]
    fn damaged_and_old_verdicts_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let kept = in_folder(folder.path(), "1");
        let (path, content) = kept.file("a card");
        for length in 0..content.len() {
            kept.note("a card", true);
            fs::write(&path, &content[..length]).unwrap();
            assert!(!kept.has_passed("a card"), "{length} bytes of {}", content.len());
        }
        let days = |days: i64| match days {
            0.. => SystemTime::now() + Duration::from_secs(24 * 3600 * days as u64),
            _ => SystemTime::now() - Duration::from_secs(24 * 3600 * days.unsigned_abs()),
        };
        for (day, holds) in [(-29, true), (-31, false), (1, false)] {
            kept.note("a card", true);
            fs::File::options().write(true).open(&path).unwrap().set_modified(days(day)).unwrap();
            assert_eq!(kept.has_passed("a card"), holds, "{day}");
        }
        let foreign = path.with_file_name("of-somebody-else");
        fs::write(&foreign, "text").unwrap();
        for old in [&path, &foreign] {
            fs::File::options().write(true).open(old).unwrap().set_modified(days(-31)).unwrap();
        }
        kept.note("another card", true);
        assert!(!path.exists() && foreign.exists(), "verdicts that are too old are removed, and nothing else");
    }

    /// A folder that is a file, so that neither reading nor writing works.
    #[test]
    fn without_a_folder_nothing_is_believed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kept = in_folder(file.path(), "1");
        kept.note("a card", true);
        assert!(!kept.has_passed("a card"));
    }
}
