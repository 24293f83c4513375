//! The binary as a user meets it: exit codes, messages, and what it leaves on the disk.

mod bad_input;
mod cache;
mod checkpoints;
mod hostile;
#[cfg(unix)]
mod interrupt;
mod language;
mod odd_input;
mod profile;
mod record;
#[cfg(unix)]
mod system;
mod tables;
mod usage;
mod weights;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// What a command did.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }

    /// It went well, and said nothing on standard error.
    #[track_caller]
    fn well(self) -> Self {
        assert!(self.code == Some(0) && self.error.is_empty(), "{self:#?}");
        self
    }

    /// It failed with one line that holds all of `parts`, paths in them as [`native`] has them, and nothing about
    /// panics.
    #[track_caller]
    fn failed(&self, parts: &[&str]) {
        let one_line = self.error.lines().count() == 1 && self.error.starts_with("error: ");
        assert!(self.code == Some(1) && one_line && !self.error.contains("panicked"), "{self:#?}");
        for part in parts.iter().map(|part| native(part)) {
            assert!(self.error.contains(&part), "'{part}' is not in {self:#?}");
        }
    }
}

/// A text with paths as the program prints them on this system.
fn native(text: &str) -> String {
    text.replace('/', std::path::MAIN_SEPARATOR_STR)
}

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_everygpu"));
    program.env_remove("RUST_LOG").env("EVERYGPU_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    with_one_driver(&mut program);
    program
}

/// Leaves `command` one driver where several are given: what is expected of the program here counts its devices.
fn with_one_driver(command: &mut Command) {
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(first) = std::env::var_os(variable).as_ref().and_then(|all| std::env::split_paths(all).next()) {
            command.env(variable, first);
        }
    }
}

/// Exit code, standard output and standard error of `everygpu` with these arguments.
fn everygpu(arguments: &[&str]) -> (i32, String, String) {
    let ran = Ran::of(program().args(arguments).output().expect("the binary runs"));
    (ran.code.expect("it was not killed"), ran.out, ran.error)
}

/// A file of the repository, from any folder (and drive).
fn repository(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::path::absolute(path).expect("there is a current folder").display().to_string()
}

fn example(name: &str) -> String {
    repository(&format!("examples/{name}"))
}

/// A folder that commands run in.
struct Place(TempDir);

/// Three samples of two features in two classes.
const TABLE: &str = "x,y,kind\n1,2,a\n3,4,b\n5,6,a\n";

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// With `t.csv` and a run file `t.toml` that trains a linear classifier on it.
    fn with_table(table: &str) -> Self {
        let place = Self::new();
        place.write("t.csv", table);
        let data = "[data]\nformat = \"csv\"\npath = \"t.csv\"\nvalidation = \"none\"\n";
        let model = "[model]\nlayers = [{ kind = \"linear\", out = 2 }]\n";
        place.write("t.toml", format!("{data}{model}[train]\nepochs = 2\nbatch = 2\n"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("writable");
        std::fs::write(path, content).expect("writable");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("readable")
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = program();
        program.current_dir(self.0.path()).args(arguments);
        program
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.program(arguments).output().expect("the binary runs"))
    }

    /// `everygpu train t.toml` with these settings.
    fn train(&self, settings: &[&str]) -> Ran {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        self.run(&["train", "t.toml"].into_iter().chain(settings).collect::<Vec<_>>())
    }

    /// The lines of a record of the run in `folder`, each of them one JSON object.
    fn lines(&self, name: &str) -> Vec<Value> {
        self.read(name).lines().map(|line| serde_json::from_str(line).expect("a line is one JSON value")).collect()
    }

    /// The names in a folder, sorted; none where it is not there.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|e| e.expect("readable").file_name().into_string().expect("UTF-8")).collect();
        names.sort_unstable();
        names
    }

    #[track_caller]
    fn has_no_run(&self) {
        assert_eq!(self.names("runs"), [""; 0], "a run folder was left behind");
    }
}
