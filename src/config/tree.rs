//! A run file as a tree of values that know where they stand, with overrides from the command line merged in. It knows
//! nothing of which keys there are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::error::{Error, Result};

/// Where a value or key stands.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The file as the user named it, or the flag.
    file: Arc<str>,
    line: Option<usize>,
    /// What relative paths are relative to.
    base: Arc<Path>,
}

impl Origin {
    /// A [`Error::Config`] about this place.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::Config { file: self.file.to_string(), line: self.line, message: message.into() }
    }

    /// The line in the file, where known.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// `path` as an absolute one.
    ///
    /// # Errors
    /// When it is nowhere and has what was hardly meant: `"C:\temp"` has a tab.
    pub fn resolve(&self, path: &str) -> Result<PathBuf> {
        let joined = self.base.join(path);
        if path.contains(char::is_control) && !joined.exists() {
            return Err(self.error(format!("there is no {path:?}, and it has a control character{BACKSLASH}")));
        }
        Ok(std::path::absolute(&joined).unwrap_or(joined))
    }
}

/// As messages begin: `run.toml:12`, or the flag.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub value: Value,
    pub origin: Origin,
}

/// A TOML value; dates are strings here.
#[derive(Debug, Clone)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: String,
    pub origin: Origin,
    pub node: Node,
}

/// As messages show it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(v) => f.write_str(&quoted(v)),
            Self::Integer(v) => write!(f, "{v}"),
            Self::Float(v) => write!(f, "{v:?}"),
            Self::Boolean(v) => write!(f, "{v}"),
            Self::List(v) => {
                let items: Vec<_> = v.iter().map(|node| node.value.to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Table(_) => f.write_str("a table"),
        }
    }
}

/// `text` as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A value given on the command line instead of the run file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    flag: String,
    key: String,
    value: String,
}

impl Override {
    /// `section.key=value` as `--set` takes it. The value is TOML, or else a string (`devices.adapters=0,2`).
    ///
    /// # Errors
    /// When there is no key or no `=`.
    pub fn parse(setting: &str) -> Result<Self> {
        let flag = format!("--set {setting}");
        match setting.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Self { flag, key: key.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err(Error::Config {
                file: flag,
                line: None,
                message: "expected KEY=VALUE, such as train.epochs=3".to_owned(),
            }),
        }
    }

    /// What another flag (`--adapters`) sets `key` to; messages name the flag.
    pub fn flag(flag: &str, key: &str, value: impl fmt::Display) -> Self {
        Self { flag: format!("{flag} {value}"), key: key.to_owned(), value: value.to_string() }
    }

    fn node(&self) -> Node {
        let origin = Origin { file: self.flag.as_str().into(), line: None, base: Path::new("").into() };
        let place = |_: std::ops::Range<usize>| origin.clone();
        let value = DeValue::parse(&self.value).map(|v| convert(v.get_ref(), &place));
        Node { value: value.unwrap_or_else(|_| Value::String(self.value.clone())), origin }
    }
}

/// What to do about a path of Windows in a TOML string.
const BACKSLASH: &str = r#"; a backslash between double quotes begins an escape: write 'C:\data\a.csv' between single quotes, or "C:/data/a.csv""#;

/// Most bytes of a run file, and most tables on the way to a key: beyond any use, and little enough that whatever a
/// file holds is read at once.
pub(super) const MOST_BYTES: usize = 2 << 20;
const MOST_DEPTH: usize = 64;

/// Why a run file of so many bytes is not read.
fn too_large(path: &Path) -> Error {
    Error::Config {
        file: path.display().to_string(),
        line: None,
        message: format!("expected a run file of at most {} MiB, this one is larger", MOST_BYTES >> 20),
    }
}

/// Parses `text`, which stands in `file`; relative paths in it are relative to `base`.
pub(super) fn parse(text: &str, file: &str, base: &Path) -> Result<Node> {
    if text.len() > MOST_BYTES {
        return Err(too_large(Path::new(file)));
    }
    let (file, base): (Arc<str>, Arc<Path>) = (file.into(), base.into());
    let ends: Vec<usize> = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let place = |span: std::ops::Range<usize>| {
        let line = ends.partition_point(|end| *end < span.start) + 1;
        Origin { file: file.clone(), line: Some(line), base: base.clone() }
    };
    match DeTable::parse(text) {
        Ok(table) => Ok(Node { value: convert_table(table.get_ref(), &place), origin: place(0..0) }),
        Err(error) => {
            let message = error.message().replace('\n', ", ");
            let advice = if message.contains("escape") || message.contains("unicode value") { BACKSLASH } else { "" };
            Err(place(error.span().unwrap_or(0..0)).error(format!("{message}{advice}")))
        }
    }
}

/// The same with `overrides` in the place of what the text says.
pub(super) fn merged(text: &str, file: &str, base: &Path, overrides: &[Override]) -> Result<Node> {
    let mut tree = parse(text, file, base)?;
    overrides.iter().try_for_each(|setting| tree.set(setting))?;
    Ok(tree)
}

fn convert_table(table: &DeTable<'_>, place: &dyn Fn(std::ops::Range<usize>) -> Origin) -> Value {
    let entry = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| Entry {
        key: key.get_ref().to_string(),
        origin: place(key.span()),
        node: Node { value: convert(value.get_ref(), place), origin: place(value.span()) },
    };
    let mut entries: Vec<Entry> = table.iter().map(entry).collect();
    entries.sort_by_key(|e| e.origin.line);
    Value::Table(entries)
}

fn convert(value: &DeValue<'_>, place: &dyn Fn(std::ops::Range<usize>) -> Origin) -> Value {
    match value {
        DeValue::String(v) => Value::String(v.to_string()),
        DeValue::Integer(v) => {
            let parsed = i64::from_str_radix(v.as_str(), v.radix());
            parsed.map_or_else(|_| Value::String(v.as_str().to_owned()), Value::Integer)
        }
        DeValue::Float(v) => v.as_str().parse().map_or_else(|_| Value::String(v.as_str().to_owned()), Value::Float),
        DeValue::Boolean(v) => Value::Boolean(*v),
        DeValue::Datetime(v) => Value::String(v.to_string()),
        DeValue::Array(items) => Value::List(
            items.iter().map(|v| Node { value: convert(v.get_ref(), place), origin: place(v.span()) }).collect(),
        ),
        DeValue::Table(table) => convert_table(table, place),
    }
}

impl Node {
    /// The value of `key`, where this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node),
            _ => None,
        }
    }

    /// The `number`-th entry, from 1, where this is a list that has it.
    pub fn item(&self, number: usize) -> Option<&Node> {
        match &self.value {
            Value::List(items) => items.get(number.checked_sub(1)?),
            _ => None,
        }
    }

    /// Puts an override's value in its place, making tables on the way.
    ///
    /// # Errors
    /// When something on the way is no table.
    pub fn set(&mut self, setting: &Override) -> Result<()> {
        let new = setting.node();
        let mut node = self;
        let mut path = String::new();
        if setting.key.split('.').nth(MOST_DEPTH).is_some() {
            return Err(new.origin.error(format!("expected a key of at most {MOST_DEPTH} parts")));
        }
        for key in setting.key.split('.') {
            let entries = match &mut node.value {
                Value::Table(entries) => entries,
                other => {
                    return Err(new.origin.error(format!("{path} is not a table but {other}; set it as a whole")));
                }
            };
            let at = entries.iter().position(|e| e.key == key).unwrap_or_else(|| {
                let empty = Node { value: Value::Table(Vec::new()), origin: new.origin.clone() };
                entries.push(Entry { key: key.to_owned(), origin: new.origin.clone(), node: empty });
                entries.len() - 1
            });
            path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            node = &mut entries[at].node;
        }
        *node = new;
        Ok(())
    }
}
