//! Where the keys of a run file stand, for what is found out about a setting only after it was read.

use std::collections::HashMap;

use super::RunConfig;
use super::tree::{Node, Origin, Value};
use crate::error::Error;

/// The places of all keys and of all entries of lists, by their names in messages (`optimizer.groups[1].lr_scale`).
#[derive(Debug, Clone, Default)]
pub(super) struct Places(HashMap<String, Origin>);

/// Two run files that say the same are equal, wherever in them it stands.
impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Places {
    /// Those of the tree `root`.
    pub fn of(root: &Node) -> Self {
        let mut places = Self::default();
        places.add("", root);
        places
    }

    fn add(&mut self, name: &str, node: &Node) {
        self.0.insert(name.to_owned(), node.origin.clone());
        match &node.value {
            Value::Table(entries) => {
                let dot = if name.is_empty() { "" } else { "." };
                entries.iter().for_each(|entry| self.add(&format!("{name}{dot}{}", entry.key), &entry.node));
            }
            Value::List(items) => {
                items.iter().enumerate().for_each(|(i, item)| self.add(&format!("{name}[{}]", i + 1), item));
            }
            _ => {}
        }
    }

    /// The place of the setting `name`, or of the innermost table or list around it that is there. Of a product of settings
    /// (`train.batch × train.accumulate`) that of the first one that is there.
    fn find(&self, name: &str) -> Option<&Origin> {
        let around = |name: &str| {
            let outer = |name: &str| name.rfind(['.', '[']).map(|end| name[..end].to_owned());
            std::iter::successors(outer(name), |name| outer(name)).find_map(|outer| self.0.get(&outer))
        };
        let mut factors = name.split(" × ");
        factors.clone().find_map(|factor| self.0.get(factor)).or_else(|| factors.find_map(around))
    }

    /// The place of what `error` is about: a setting, or a layer (`layer 2 (conv2d): …`).
    fn of_error(&self, error: &Error) -> Option<&Origin> {
        match error {
            Error::Invalid { name, .. } => self.find(name),
            Error::Shape { what, .. } => {
                let number: usize = what.strip_prefix("layer ")?.split(' ').next()?.parse().ok()?;
                self.find(&format!("model.layers[{number}]"))
            }
            _ => None,
        }
    }

    /// `error` with its place, where it is about something that has one.
    pub fn located(&self, error: Error) -> Error {
        match self.of_error(&error) {
            Some(origin) => origin.error(error.to_string()),
            None => error,
        }
    }
}

impl RunConfig {
    /// Where the setting `name` stands, or the table that it would stand in.
    pub(super) fn place(&self, name: &str) -> Option<&Origin> {
        self.places.find(name)
    }

    /// Where in the run file the setting or layer stands that `error` is about (`run.toml:12`, or the flag that gave it); `None`
    /// for an error that is about neither.
    pub fn place_of(&self, error: &Error) -> Option<String> {
        self.places.of_error(error).map(ToString::to_string)
    }
}
