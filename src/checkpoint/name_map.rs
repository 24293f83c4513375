//! How tensors are called in another program's file.

use std::collections::HashSet;

use crate::error::{Error, Result, nearest};

/// How tensors of a file are called here: rules that replace the front of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameMap {
    /// From and to, each whole parts of a dotted name; an empty one stands for no part.
    rules: Vec<(String, String)>,
}

impl NameMap {
    /// Adds a rule `FROM=TO`: a name that is FROM, or starts with it and a dot, gets TO in its place. `model=` takes a
    /// leading `model.` away, `=model` puts it in front. The first rule that fits counts.
    ///
    /// # Errors
    /// When there is no `=`, or nothing on either side of it.
    pub fn rule(&mut self, rule: &str) -> Result<()> {
        match rule.split_once('=') {
            Some((from, to)) if from != to => {
                self.rules.push((from.to_owned(), to.to_owned()));
                Ok(())
            }
            _ => {
                Err(Error::invalid("name map", format!("expected FROM=TO, two different parts of names, got '{rule}'")))
            }
        }
    }

    /// The rule that counts for the tensor `name`, by its index, and what of the name is behind its FROM.
    fn fitting<'a>(&self, name: &'a str) -> Option<(usize, &'a str)> {
        let behind = |from: &str| match from {
            "" => Some(name),
            _ => name.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('.')),
        };
        self.rules.iter().enumerate().find_map(|(index, (from, _))| Some((index, behind(from)?)))
    }

    /// Checks that every rule is the one that counts for some tensor of `names`.
    ///
    /// # Errors
    /// When one is not: the message has the names that are nearest to its FROM.
    pub fn check(&self, names: &[&str]) -> Result<()> {
        let used: HashSet<usize> = names.iter().filter_map(|name| Some(self.fitting(name)?.0)).collect();
        match self.rules.iter().enumerate().find(|(index, _)| !used.contains(index)) {
            None => Ok(()),
            Some((_, (from, to))) => {
                let near = nearest(from, names.to_vec()).join(", ");
                let message = format!(
                    "'{from}={to}' renames no tensor: FROM is a whole name or whole parts of its front, and the first rule \
                     that fits a name counts; the nearest names are: {near}"
                );
                Err(Error::invalid("name map", message))
            }
        }
    }

    /// What the tensor `name` is called.
    pub fn apply(&self, name: &str) -> String {
        match self.fitting(name) {
            None => name.to_owned(),
            Some((index, rest)) => {
                let to = &self.rules[index].1;
                let parts = [to.as_str(), rest.trim_start_matches('.')];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A map of these rules.
    pub fn map(rules: &[&str]) -> NameMap {
        let mut map = NameMap::default();
        rules.iter().for_each(|rule| map.rule(rule).unwrap());
        map
    }

    #[test]
    fn names_are_replaced_by_whole_parts() {
        let renamed = map(&["0=fc", "features.1=conv", "module="]);
        assert_eq!(renamed.apply("0.weight"), "fc.weight");
        assert_eq!(renamed.apply("00.weight"), "00.weight");
        assert_eq!(renamed.apply("features.1.bias"), "conv.bias");
        assert_eq!(renamed.apply("features.10.bias"), "features.10.bias");
        assert_eq!(renamed.apply("module.a.weight"), "a.weight");
        assert_eq!(map(&["=net"]).apply("a.weight"), "net.a.weight");
        assert_eq!(map(&["pos=positions.weight"]).apply("pos"), "positions.weight");
        for bad in ["", "a", "=", "a=a"] {
            let error = NameMap::default().rule(bad).unwrap_err().to_string();
            assert!(error.contains("expected FROM=TO"), "{error}");
        }
    }
}
