//! The one error type of the library. Every variant names the thing that is wrong, what was expected and, where the
//! user can act, what to do. Nothing here may depend on another module.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// `Result` with [`Error`] as its default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation or layer was given shapes, types or attributes that cannot work.
    #[error("{what}: {message}")]
    Shape {
        /// The op or layer, by name (`layer 3 (conv2d)`, `op matmul`).
        what: String,
        /// What was expected and what was given.
        message: String,
    },

    /// A run file that cannot be used.
    #[error("{file}{}: {message}", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Config {
        /// The run file as the user named it, or what stands for it (`--set`).
        file: String,
        /// 1-based line, where known.
        line: Option<usize>,
        /// What is wrong and what was expected.
        message: String,
    },

    /// A data file that cannot be used.
    #[error("{}{}{}: {message}", path.display(),
        line.map(|l| format!(":{l}")).unwrap_or_default(),
        column.map(|c| format!(": column {c}")).unwrap_or_default())]
    Data {
        /// The file.
        path: PathBuf,
        /// 1-based line (or record), where known.
        line: Option<u64>,
        /// 1-based column, where known.
        column: Option<usize>,
        /// What is wrong and what was expected.
        message: String,
    },

    /// A checkpoint or weight file that cannot be used.
    #[error("checkpoint {}: {message}", path.display())]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and what was expected.
        message: String,
    },

    /// No adapter can be used at all.
    #[error("no usable WebGPU adapter: {0}")]
    NoAdapter(String),

    /// `--adapters` (or its library counterpart) names something that is not there.
    #[error("unknown adapter '{wanted}'; available: {available}")]
    UnknownAdapter {
        /// What was asked for.
        wanted: String,
        /// What there is.
        available: String,
    },

    /// The device refused or failed a call.
    #[error("{adapter}: {message}")]
    Device {
        /// The adapter, by its display name.
        adapter: String,
        /// What failed.
        message: String,
    },

    /// The device is gone (unplugged, reset, driver crash).
    #[error("{adapter}: device lost: {message}")]
    DeviceLost {
        /// The adapter, by its display name.
        adapter: String,
        /// The driver's reason.
        message: String,
    },

    /// A buffer could not be allocated.
    #[error("{adapter}: out of memory: {buffer} needs {bytes} bytes, {in_use} bytes are in use{}",
        limit.map(|l| format!(" and the limit is {l} bytes")).unwrap_or_default())]
    OutOfMemory {
        /// The adapter, by its display name.
        adapter: String,
        /// The buffer that did not fit.
        buffer: String,
        /// Its size.
        bytes: u64,
        /// Bytes allocated on this device before it.
        in_use: u64,
        /// `--memory-limit`, where one was set.
        limit: Option<u64>,
    },

    /// The model needs more than the adapter offers.
    #[error("{adapter}: {what} needs {}, but the adapter's {limit_name} is {}; {advice}",
        amount(*needed, limit_name), amount(*limit, limit_name))]
    Limit {
        /// The adapter, by its display name.
        adapter: String,
        /// The buffer or kernel.
        what: String,
        /// What it needs, in the limit's unit.
        needed: u64,
        /// The WebGPU limit's name.
        limit_name: &'static str,
        /// The limit.
        limit: u64,
        /// What to do.
        advice: String,
    },

    /// The device that updates is gone, and the optimizer's state with it, until a snapshot is restored.
    #[error("training stopped: the device with the optimizer's state was lost; restore a snapshot")]
    StateLost,

    /// Training cannot go on.
    #[error("training stopped: {0}")]
    Training(String),

    /// An argument or setting outside its range.
    #[error("{name}: {message}")]
    Invalid {
        /// The setting, as the user spells it.
        name: String,
        /// What was expected and what was given.
        message: String,
    },

    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// A [`Error::Shape`] for `what`.
    pub fn shape(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Shape { what: what.into(), message: message.into() }
    }

    /// A [`Error::Invalid`] for the setting `name`.
    pub fn invalid(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { name: name.into(), message: message.into() }
    }

    /// A [`Error::Data`] about a whole file.
    pub fn data(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Data { path: path.into(), line: None, column: None, message: message.into() }
    }

    /// A [`Error::Checkpoint`] for `path`.
    pub fn checkpoint(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.into(), message: message.into() }
    }

    /// Wraps an I/O error with the path it happened on: `.map_err(Error::io(path))`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// The same for a file that was to be opened or read: that a folder is in its place, or a file in the place of a
    /// folder that it would be in, is told as such. Systems have all sorts of words for it, "access denied" among them.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            if path.is_dir() {
                return Self::io(path)(io::Error::new(ErrorKind::IsADirectory, "expected a file, found a folder"));
            }
            match path.ancestors().skip(1).find(|folder| folder.is_file()) {
                Some(file) => {
                    Self::io(file)(io::Error::new(ErrorKind::NotADirectory, "expected a folder, found a file"))
                }
                None => Self::Io { path, source },
            }
        }
    }
}

/// `value` in the unit of the WebGPU limit of this name.
fn amount(value: u64, limit_name: &str) -> String {
    match limit_name {
        name if name.ends_with("_size") => format!("{value} bytes ({:.1} MiB)", value as f64 / f64::from(1 << 20)),
        name if name.contains("invocations") => format!("{value} invocations"),
        _ => value.to_string(),
    }
}

/// Names that are listed for one that is not there.
const LISTED: usize = 5;

/// Characters of a name by which it is compared with others.
const COMPARED: usize = 100;

/// How much like `given` a name must be to be what was meant, from 0 to 1.
const ALIKE: f64 = 0.75;

/// `names`, the likest to `given` first, with their likeness from 0 to 1 (Winkler, "String Comparator Metrics", 1990).
fn by_likeness<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<(f64, &'a str)> {
    let begin = |name: &str| name.chars().take(COMPARED).collect::<String>().to_lowercase();
    let given = begin(given);
    let likeness = |name: &'a str| (strsim::jaro_winkler(&given, &begin(name)), name);
    let mut names: Vec<_> = names.into_iter().map(likeness).collect();
    names.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    names
}

/// Those of `names` that are most like `given`, which is none of them, the likest first: for a message.
pub(crate) fn nearest<'a>(given: &str, names: Vec<&'a str>) -> Vec<&'a str> {
    by_likeness(given, names).into_iter().take(LISTED).map(|(_, name)| name).collect()
}

/// The one of `names` that was probably meant by `given`, which is none of them.
pub(crate) fn meant<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let short = |name: &&str| given.len().max(name.len()) <= COMPARED;
    by_likeness(given, names.into_iter().filter(short))
        .first()
        .filter(|(likeness, _)| *likeness > ALIKE)
        .map(|(_, name)| *name)
}
