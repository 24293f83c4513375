//! A table being read. A key is known because it is asked for: what nobody has asked for when the section is finished
//! is an unknown key, and the nearest of those asked for is what was probably meant.

use std::fmt::Display;

use super::tree::{Entry, Node, Origin, Value};
use crate::error::{Error, Result, meant};

/// Why a value cannot be used.
pub(super) enum Wrong {
    /// It is not what the key allows.
    Other,
    /// What was expected in its place.
    Expected(String),
    /// An error that says where it belongs.
    Told(Error),
}

impl Wrong {
    /// The same with other words for what was expected, which is `allowed` when nothing else is said.
    pub fn reworded(self, allowed: &impl Display, words: impl Fn(&dyn Display) -> String) -> Self {
        match self {
            Self::Other => Self::Expected(words(allowed)),
            Self::Expected(expected) => Self::Expected(words(&expected)),
            told => told,
        }
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

/// A value, or why there is none.
pub(super) type Read<T> = Result<T, Wrong>;

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

    /// The value of `key` as `read` takes it, from its name in messages and what stands there.
    pub fn optional<T>(&mut self, key: &str, read: impl FnOnce(&str, &Node) -> Result<T>) -> Result<Option<T>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        read(&self.full(key), &node).map(Some)
    }

    /// The error for a key that is not there; `purpose` says what it is for.
    pub fn missing(&self, key: &str, purpose: &str) -> Error {
        // A key by almost this name is more likely a slip than one too many.
        let slip = self.entries.iter().find(|e| meant(&e.key, [key]).is_some());
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
        match meant(&unknown.key, self.asked.iter().map(String::as_str)) {
            Some(near) => message.push_str(&format!("; did you mean '{}'?", self.full(near))),
            None if self.asked.is_empty() => {}
            None => message.push_str(&format!("; known here: {}", self.asked.join(", "))),
        }
        Err(unknown.origin.error(message))
    }
}
