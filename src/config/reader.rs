//! Typed reading of a table. A key is known because it is asked for: what nobody has asked for when the section is finished
//! is an unknown key, and the nearest of those asked for is what was probably meant.

use std::fmt::Display;
use std::path::PathBuf;

use super::tree::{Entry, Node, Origin, Value, quoted};
use crate::error::{Error, Result};

/// What a value must be: the value, or a description of what was expected.
pub(super) type Read<T> = Result<T, String>;

/// A table being read.
pub(super) struct Section {
    /// Its name in messages (`train`); empty for the file itself.
    path: String,
    origin: Origin,
    entries: Vec<Entry>,
    asked: Vec<String>,
}

impl Section {
    /// Starts to read `node` as the table `path`.
    pub fn new(path: &str, node: Node) -> Result<Self> {
        match node.value {
            Value::Table(entries) => {
                Ok(Self { path: path.to_owned(), origin: node.origin, entries, asked: Vec::new() })
            }
            other => Err(node.origin.error(format!("{path}: expected a table, got {other}"))),
        }
    }

    /// A table without entries.
    pub fn empty(path: &str, origin: Origin) -> Self {
        Self { path: path.to_owned(), origin, entries: Vec::new(), asked: Vec::new() }
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.path
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`, which is thereby known; `None` when it is not there.
    pub fn take(&mut self, key: &str) -> Option<Node> {
        self.asked.push(key.to_owned());
        let at = self.entries.iter().position(|e| e.key == key)?;
        Some(self.entries.remove(at).node)
    }

    /// All entries that are left, whose keys are the user's names.
    pub fn take_all(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    /// The sub-table `key`, empty when it is not there.
    pub fn section(&mut self, key: &str) -> Result<Section> {
        let empty = Node { value: Value::Table(Vec::new()), origin: self.origin.clone() };
        let node = self.take(key).unwrap_or(empty);
        Section::new(&self.full(key), node)
    }

    /// The value of `key` as `read` takes it.
    pub fn optional<T>(&mut self, key: &str, read: impl FnOnce(&Value) -> Read<T>) -> Result<Option<T>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        let value = read(&node.value).map_err(|expected| self.mismatch(key, &node, &expected))?;
        Ok(Some(value))
    }

    /// The same with a default.
    pub fn get<T>(&mut self, key: &str, default: T, read: impl FnOnce(&Value) -> Read<T>) -> Result<T> {
        Ok(self.optional(key, read)?.unwrap_or(default))
    }

    /// The same for a key that must be there; `purpose` says what it is for.
    pub fn required<T>(&mut self, key: &str, purpose: &str, read: impl FnOnce(&Value) -> Read<T>) -> Result<T> {
        self.optional(key, read)?.ok_or_else(|| self.missing(key, purpose))
    }

    /// An absolute path, relative ones being relative to the run file (on the command line: the current folder).
    pub fn path(&mut self, key: &str, purpose: &str) -> Result<PathBuf> {
        let node = self.take(key).ok_or_else(|| self.missing(key, purpose))?;
        let path = text(&node.value).map_err(|expected| self.mismatch(key, &node, &expected))?;
        node.origin.resolve(&path)
    }

    /// The error for the value `node` of `key`.
    pub fn mismatch(&self, key: &str, node: &Node, expected: &str) -> Error {
        node.origin.error(format!("{}: expected {expected}, got {}", self.full(key), node.value))
    }

    /// The error for a key that is not there.
    pub fn missing(&self, key: &str, purpose: &str) -> Error {
        // A key by almost this name is more likely a slip than one too many.
        let slip = self.entries.iter().find(|e| nearest(&e.key, std::iter::once(key)).is_some());
        match slip {
            Some(e) => {
                e.node.origin.error(format!("unknown key '{}'; did you mean '{}'?", self.full(&e.key), self.full(key)))
            }
            None => self.origin.error(format!("{} is missing: {purpose}", self.full(key))),
        }
    }

    /// An error about the whole section.
    pub fn error(&self, message: impl Into<String>) -> Error {
        self.origin.error(message)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// When a key is left: it names the key and the nearest known one.
    pub fn finish(self) -> Result<()> {
        let Some(unknown) = self.entries.first() else { return Ok(()) };
        let mut message = format!("unknown key '{}'", self.full(&unknown.key));
        match nearest(&unknown.key, self.asked.iter().map(String::as_str)) {
            Some(near) => message.push_str(&format!("; did you mean '{}'?", self.full(near))),
            None if self.asked.is_empty() => {}
            None => message.push_str(&format!("; known here: {}", self.asked.join(", "))),
        }
        Err(unknown.origin.error(message))
    }
}

/// Most characters of what may be meant for a word.
const MOST_LETTERS: usize = 100;

/// The word most like `given`, if one is like it at all.
pub(super) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let short = |word: &&str| given.len().max(word.len()) <= MOST_LETTERS;
    known
        .filter(short)
        .map(|word| (strsim::jaro_winkler(&given.to_lowercase(), word), word))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// A string.
pub(super) fn text(value: &Value) -> Read<String> {
    match value {
        Value::String(v) => Ok(v.clone()),
        _ => Err("a string".to_owned()),
    }
}

/// true or false.
pub(super) fn flag(value: &Value) -> Read<bool> {
    match value {
        Value::Boolean(v) => Ok(*v),
        _ => Err("true or false".to_owned()),
    }
}

/// A whole number of at least `least`.
pub(super) fn whole<T: TryFrom<i64>>(least: u32) -> impl Fn(&Value) -> Read<T> {
    move |value| match value {
        Value::Integer(v) if *v >= i64::from(least) => T::try_from(*v).map_err(|_| "a smaller whole number".to_owned()),
        _ => Err(format!("a whole number of at least {least}")),
    }
}

/// A whole number from `least` to `most`.
pub(super) fn between(least: u32, most: u32) -> impl Fn(&Value) -> Read<usize> {
    move |value| match value {
        Value::Integer(v) if (i64::from(least)..=i64::from(most)).contains(v) => Ok(*v as usize),
        _ => Err(format!("a whole number from {least} to {most}")),
    }
}

/// A number for which `accept` holds; `expected` describes it.
pub(super) fn number(accept: impl Fn(f64) -> bool, expected: impl Display) -> impl Fn(&Value) -> Read<f64> {
    move |value| {
        let number = match value {
            Value::Integer(v) => Some(*v as f64),
            Value::Float(v) => Some(*v),
            _ => None,
        };
        number.filter(|&v| accept(v)).ok_or_else(|| expected.to_string())
    }
}

/// What `read` takes, in single precision, in which it must still be what `read` takes.
pub(super) fn single(read: impl Fn(&Value) -> Read<f64>) -> impl Fn(&Value) -> Read<f32> {
    move |value| {
        let rounded = read(value)? as f32;
        match read(&Value::Float(f64::from(rounded))) {
            Ok(_) => Ok(rounded),
            Err(expected) => Err(format!("{expected} in single precision")),
        }
    }
}

/// A finite number.
pub(super) fn finite(value: &Value) -> Read<f64> {
    number(f64::is_finite, "a finite number")(value)
}

/// A finite number above 0.
pub(super) fn positive(value: &Value) -> Read<f64> {
    number(|v| v.is_finite() && v > 0.0, "a finite number above 0")(value)
}

/// A finite number of at least 0.
pub(super) fn not_negative(value: &Value) -> Read<f64> {
    number(|v| v.is_finite() && v >= 0.0, "a finite number of at least 0")(value)
}

/// A number in [0, 1).
pub(super) fn below_one(value: &Value) -> Read<f64> {
    number(|v| (0.0..1.0).contains(&v), "a number of at least 0 and below 1")(value)
}

/// A list of what `item` takes, with one entry at least.
pub(super) fn list<T>(item: impl Fn(&Value) -> Read<T>) -> impl Fn(&Value) -> Read<Vec<T>> {
    move |value| match value {
        Value::List(items) if !items.is_empty() => {
            items.iter().map(|n| item(&n.value)).collect::<Read<_>>().map_err(|e| format!("a list, each entry {e}"))
        }
        _ => Err("a list with at least one entry".to_owned()),
    }
}

/// Most dimensions of a shape: beyond any use.
const MOST_DIMENSIONS: usize = 16;

/// The dimensions of a tensor.
pub(super) fn shape(value: &Value) -> Read<Vec<usize>> {
    let dims = list(whole::<usize>(1))(value)?;
    match dims.len() {
        ..=MOST_DIMENSIONS => Ok(dims),
        _ => Err(format!("at most {MOST_DIMENSIONS} dimensions")),
    }
}

/// One of some words.
pub(super) fn choice<T: Copy>(options: &[(&str, T)]) -> impl Fn(&Value) -> Read<T> {
    move |value| {
        let names: Vec<_> = options.iter().map(|(name, _)| quoted(name)).collect();
        let found = match value {
            Value::String(v) => options.iter().find(|(name, _)| name == v),
            _ => None,
        };
        found.map(|(_, option)| *option).ok_or_else(|| any_of(&names))
    }
}

/// `a, b or c`
pub(super) fn any_of(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
