//! Values by name: weights, the tensors of a file, the shapes of parameters.

use std::ops::Deref;

use indexmap::IndexMap;
use indexmap::map::{Entry, IntoIter, Iter, IterMut};

use crate::error::{Error, Result};

/// Values by name, in the order in which they were added: files are written and sums are taken in it. Two of these are
/// equal when their order is, too.
#[derive(Debug, Clone)]
pub struct Named<T>(IndexMap<String, T>);

impl<T> Named<T> {
    /// Values with their names.
    ///
    /// # Errors
    /// When two have one name.
    pub fn of<N: Into<String>>(values: impl IntoIterator<Item = (N, T)>) -> Result<Self> {
        let mut named = Self::default();
        named.extend(values)?;
        Ok(named)
    }

    /// Adds values with their names behind those that are there.
    ///
    /// # Errors
    /// When a name is there already.
    pub fn extend<N: Into<String>>(&mut self, values: impl IntoIterator<Item = (N, T)>) -> Result<()> {
        for (name, value) in values {
            match self.0.entry(name.into()) {
                Entry::Vacant(place) => drop(place.insert(value)),
                Entry::Occupied(place) => {
                    return Err(Error::invalid(place.key(), "two have this name; names must be unique"));
                }
            }
        }
        Ok(())
    }

    /// The same, sorted by name.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0.sort_unstable_keys();
        self
    }

    /// The value of this name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.0.get_mut(name)
    }

    /// All values with their names, in order, the values to be changed.
    pub fn iter_mut(&mut self) -> IterMut<'_, String, T> {
        self.0.iter_mut()
    }
}

impl<T: PartialEq> PartialEq for Named<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice() == other.0.as_slice()
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(IndexMap::new())
    }
}

/// To be read, it is a map. Nothing is put into it past [`Named::extend`].
impl<T> Deref for Named<T> {
    type Target = IndexMap<String, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> IntoIterator for Named<T> {
    type Item = (String, T);
    type IntoIter = IntoIter<String, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Named<T> {
    type Item = (&'a String, &'a T);
    type IntoIter = Iter<'a, String, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_kept_and_a_second_value_of_a_name_is_refused() {
        let mut named = Named::of([("b", 1), ("a", 2)]).unwrap();
        named.extend([("c", 3)]).unwrap();
        assert_eq!(
            named.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>(),
            [("b", 1), ("a", 2), ("c", 3)]
        );
        assert_eq!((named.get("a"), named.get("d"), named["c"]), (Some(&2), None, 3));
        assert_ne!(named.clone().sorted(), named);
        assert_eq!(named.clone().sorted(), Named::of([("a", 2), ("b", 1), ("c", 3)]).unwrap());
        assert_eq!(named.clone().sorted().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b", "c"]);
        let error = named.extend([("a", 4)]).unwrap_err().to_string();
        assert_eq!(error, "a: two have this name; names must be unique");
    }
}
