//! Where the keys of a run file stand, for what is found out about a setting only after it was read.

use std::sync::Arc;

use super::RunConfig;
use super::tree::{Node, Origin};
use crate::error::Error;

/// A run file's tree, in which settings are looked up by their names in messages (`optimizer.groups[1].lr_scale`).
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Option<Arc<Node>>);

/// Two run files that say the same are equal, wherever in them it stands.
impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Places {
    /// Those of the tree `root`.
    pub fn of(root: &Node) -> Self {
        Self(Some(Arc::new(root.clone())))
    }

    /// The place of the setting `name`, or of the innermost table or list around it that is there. Of a product of
    /// settings (`train.batch × train.accumulate`) that of the first one that is there.
    fn find(&self, name: &str) -> Option<&Origin> {
        let factors = || name.split(" × ").filter_map(|factor| self.nearest(factor));
        let whole = factors().find(|(_, whole)| *whole);
        whole.or_else(|| factors().next()).map(|(origin, _)| origin)
    }

    /// The place of `name`, or of the innermost part of it that is there; and whether it is that of `name`.
    fn nearest(&self, name: &str) -> Option<(&Origin, bool)> {
        let (mut node, mut place) = (self.0.as_deref()?, None);
        for part in name.split(['.', '[']) {
            let inner = match part.strip_suffix(']').map(str::parse) {
                Some(Ok(number)) => node.item(number),
                _ => node.get(part),
            };
            let Some(inner) = inner else { return place.map(|origin| (origin, false)) };
            (node, place) = (inner, Some(&inner.origin));
        }
        place.map(|origin| (origin, true))
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

    /// Where in the run file the setting or layer stands that `error` is about (`run.toml:12`, or the flag that gave
    /// it); `None` for an error that is about neither.
    pub fn place_of(&self, error: &Error) -> Option<String> {
        self.places.of_error(error).map(ToString::to_string)
    }
}
