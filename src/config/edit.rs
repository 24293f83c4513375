//! Changes a run file in place: one key, everything else (comments, order, spaces) as it was.

use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use super::places::Places;
use super::tree::{self, Node, Value};
use super::{Override, RunConfig};
use crate::checkpoint::{Snapshot, check_writable, write_atomic};
use crate::error::{Error, Result};
use crate::file;
use crate::optim::Optimizer;
use crate::train::{MicroBatchSize, check_optimizer};

/// A run file as it was read.
#[derive(Debug, Clone)]
pub struct RunFile {
    path: PathBuf,
    text: String,
}

impl RunFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::Data`] when it is too large to be a run file or no UTF-8 text.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = file::read(path, tree::MOST_BYTES as u64, ", far more than a run file needs")?;
        let text = file::text(bytes).map_err(|message| Error::data(path, message))?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// What it says, with `overrides` in the place of what it says.
    ///
    /// # Errors
    /// [`Error::Config`] when something in it cannot be used.
    pub fn config(&self, overrides: &[Override]) -> Result<RunConfig> {
        RunConfig::of(self.tree(overrides)?)
    }

    /// The same for a run that goes on from `snapshot`.
    ///
    /// # Errors
    /// [`Error::Config`] also when the snapshot is of another optimizer, whose settings may still be there.
    pub fn config_to_resume(&self, overrides: &[Override], snapshot: &Snapshot) -> Result<RunConfig> {
        let tree = self.tree(overrides)?;
        let kind = match tree.get("optimizer").and_then(|optimizer| optimizer.get("kind")) {
            None => Some(Optimizer::default().name()),
            Some(Node { value: Value::String(kind), .. }) => Some(kind.as_str()),
            Some(_) => None,
        };
        kind.map_or(Ok(()), |kind| check_optimizer(snapshot, kind)).map_err(|e| Places::of(&tree).located(e))?;
        RunConfig::of(tree)
    }

    fn tree(&self, overrides: &[Override]) -> Result<Node> {
        let base = self.path.parent().unwrap_or(Path::new(""));
        tree::merged(&self.text, &self.path.display().to_string(), base, overrides)
    }

    /// Sets `train.micro_batch` in the file, and nothing else. The new file takes the old one's place as a whole.
    ///
    /// # Errors
    /// [`Error::Config`] when the file is no longer what was read, is read-only or has no place for the key; then, and
    /// when it cannot be written, it stays as it is.
    pub fn set_micro_batch(&mut self, rows: usize) -> Result<()> {
        let new = self.with_micro_batch(rows)?;
        let (path, permissions) = self.target()?;
        if fs::read(&path).map_err(Error::io(&self.path))? != self.text.as_bytes() {
            return Err(self.error("has been changed since it was read; nothing was written, run the command again"));
        }
        write_atomic(&path, new.as_bytes()).map_err(|error| self.named(error))?;
        fs::set_permissions(&path, permissions).map_err(Error::io(&self.path))?;
        self.text = new;
        Ok(())
    }

    /// Checks that [`RunFile::set_micro_batch`] could write the file now, which stays as it is.
    ///
    /// # Errors
    /// As there.
    pub fn check_writable(&self) -> Result<()> {
        self.with_micro_batch(1)?;
        check_writable(self.target()?.0).map_err(|error| self.named(error))
    }

    /// `error` about the file under the name that the user has for it.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Io { source, .. } => Error::io(&self.path)(source),
            other => other,
        }
    }

    /// What is to be replaced, the file itself and not a link to it, and its permissions.
    fn target(&self) -> Result<(PathBuf, fs::Permissions)> {
        let path = fs::canonicalize(&self.path).map_err(Error::io(&self.path))?;
        let permissions = fs::metadata(&path).map_err(Error::io(&self.path))?.permissions();
        if permissions.readonly() {
            return Err(self.error("is read-only; nothing was written"));
        }
        Ok((path, permissions))
    }

    /// The text with `train.micro_batch` set, after a check that it says what the old one said but for that.
    fn with_micro_batch(&self, rows: usize) -> Result<String> {
        let mut document: DocumentMut = self.text.parse().map_err(|e: toml_edit::TomlError| self.error(e.message()))?;
        let train = document.entry("train").or_insert_with(|| Item::Table(Table::new()));
        let train: &mut dyn TableLike = train.as_table_like_mut().ok_or_else(|| self.error("train is not a table"))?;
        match train.get_mut("micro_batch").and_then(Item::as_value_mut) {
            Some(old) => {
                // Spaces and a comment at the end of the line belong to the value.
                let decor = old.decor().clone();
                *old = (rows as i64).into();
                *old.decor_mut() = decor;
            }
            None => drop(train.insert("micro_batch", value(rows as i64))),
        }
        // toml_edit writes LF; a file with CRLF keeps it (one with both has CRLF throughout afterwards).
        let text = document.to_string();
        let text = if self.text.contains("\r\n") && !text.contains("\r\n") { text.replace('\n', "\r\n") } else { text };
        let mut wanted = self.config(&[])?;
        wanted.train.micro_batch = MicroBatchSize::Rows(rows);
        let written = Self { path: self.path.clone(), text };
        if written.config(&[])? != wanted {
            return Err(self.error("cannot be changed in this one place; set train.micro_batch by hand"));
        }
        Ok(written.text)
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::Config { file: self.path.display().to_string(), line: None, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "\n[model]\nlayers = [{ kind = \"linear\", out = 10 }] # the only one\n";

    fn file(folder: &tempfile::TempDir, text: &str) -> RunFile {
        let path = folder.path().join("run.toml");
        fs::write(&path, text).unwrap();
        RunFile::read(&path).unwrap()
    }

    fn after(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut file = file(&folder, text);
        file.set_micro_batch(48).unwrap();
        let written = fs::read_to_string(folder.path().join("run.toml")).unwrap();
        assert_eq!(file.text, written);
        assert_eq!(file.config(&[]).unwrap().train.micro_batch, MicroBatchSize::Rows(48));
        written
    }

    #[test]
    fn one_value_changes_and_all_else_stays() {
        for (before, wanted) in [
            (
                "# top\n[train] # t\nmicro_batch = \"auto\"   # rows\nbatch=64\n",
                "# top\n[train] # t\nmicro_batch = 48   # rows\nbatch=64\n",
            ),
            ("[train]\nbatch  = 64 # kept\n", "[train]\nbatch  = 64 # kept\nmicro_batch = 48\n"),
            ("train = { batch = 64, micro_batch = 3 }\n", "train = { batch = 64, micro_batch = 48 }\n"),
            ("train.batch = 64 # b\n", "train.batch = 64 # b\ntrain.micro_batch = 48\n"),
            (
                "[train]\r\nbatch = 64 # kept\r\nmicro_batch = 1\r\n",
                "[train]\r\nbatch = 64 # kept\r\nmicro_batch = 48\r\n",
            ),
        ] {
            let rest = if before.contains("\r\n") { REST.replace('\n', "\r\n") } else { REST.to_owned() };
            assert_eq!(after(&format!("{before}{rest}")), format!("{wanted}{rest}"));
        }
        let added = after(&format!("# no table yet{REST}"));
        assert!(
            added.starts_with(&format!("# no table yet{REST}")) && added.ends_with("[train]\nmicro_batch = 48\n"),
            "{added}"
        );
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = file(&folder, REST);
        let changed = format!("{REST}# mine\n");
        fs::write(folder.path().join("run.toml"), &changed).unwrap();
        let error = run.set_micro_batch(8).unwrap_err().to_string();
        assert!(error.contains("run.toml: has been changed since it was read"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("run.toml")).unwrap(), changed);
    }

    #[test]
    fn a_read_only_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = file(&folder, REST);
        let path = folder.path().join("run.toml");
        let before = fs::metadata(&path).unwrap().permissions();
        let mut permissions = before.clone();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).unwrap();
        let error = run.set_micro_batch(8).unwrap_err().to_string();
        assert!(error.contains("is read-only"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), REST);
        // Windows does not remove a file that is read-only.
        fs::set_permissions(&path, before).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(matches!(run.set_micro_batch(8), Err(Error::Io { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_and_the_permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        file(&folder, REST);
        let (path, link) = (folder.path().join("run.toml"), folder.path().join("link.toml"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        RunFile::read(&link).unwrap().set_micro_batch(8).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::read_to_string(&path).unwrap().contains("micro_batch = 8"));
    }
}
