//! Class labels as written in a file, turned into class indices. Knows nothing of files: its complaints are texts.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::table::shown;
use crate::error::meant;

/// Gathers labels in file order.
pub(super) struct Labels {
    /// Index by label: final with known classes, else by first appearance.
    index: HashMap<String, u32>,
    known: Option<Vec<String>>,
    labels: Vec<u32>,
}

impl Labels {
    /// Labels out of the `known` classes, or whatever is found.
    pub(super) fn new(known: Option<&[String]>) -> Self {
        let index = known.unwrap_or_default().iter().zip(0..).map(|(name, i)| (name.clone(), i)).collect();
        Self { index, known: known.map(<[String]>::to_vec), labels: Vec::new() }
    }

    /// Adds the next sample's label.
    ///
    /// # Errors
    /// With a message when it is empty or not among the known classes.
    pub(super) fn push(&mut self, label: &str) -> Result<(), String> {
        let index = match (self.index.get(label), &self.known) {
            (Some(&index), _) => index,
            _ if label.is_empty() => return Err("the label is empty".to_string()),
            (None, Some(known)) => {
                return Err(format!(
                    "label '{}' is not one of the known classes {}",
                    shown(label),
                    listed(label, known)
                ));
            }
            (None, None) => {
                let next = self.index.len() as u32;
                self.index.insert(label.to_string(), next);
                next
            }
        };
        self.labels.push(index);
        Ok(())
    }

    /// The class indices and the classes, sorted by value if all are numbers, else by name; known ones as they were.
    pub(super) fn finish(self) -> (Vec<u32>, Vec<String>) {
        if let Some(known) = self.known {
            return (self.labels, known);
        }
        let mut classes: Vec<(String, u32)> = self.index.into_iter().collect();
        classes.sort();
        // Integers may be larger than float64 can tell apart.
        let integers: Option<Vec<i128>> = classes.iter().map(|(name, _)| name.parse().ok()).collect();
        let number = |name: &String| name.parse::<f64>().ok().filter(|value| value.is_finite());
        let numbers: Option<Vec<f64>> = classes.iter().map(|(name, _)| number(name)).collect();
        classes = match (integers, numbers) {
            (Some(values), _) => by_value(classes, values),
            (_, Some(values)) => by_value(classes, values),
            _ => classes,
        };
        let mut rank = vec![0; classes.len()];
        for ((_, found), i) in classes.iter().zip(0..) {
            rank[*found as usize] = i;
        }
        let labels = self.labels.into_iter().map(|found| rank[found as usize]).collect();
        (labels, classes.into_iter().map(|(name, _)| name).collect())
    }
}

/// `items` in the order of their values; equal ones stay as they are.
fn by_value<T, V: PartialOrd>(items: Vec<T>, values: Vec<V>) -> Vec<T> {
    let mut pairs: Vec<(V, T)> = values.into_iter().zip(items).collect();
    pairs.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal));
    pairs.into_iter().map(|(_, item)| item).collect()
}

/// `names` for a message about the unknown `wanted`: the first twenty, and the nearest one if it is near.
pub(super) fn listed(wanted: &str, names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    if let Some(near) = meant(wanted, names.iter().map(String::as_str)) {
        text.push_str(&format!("; did you mean '{near}'?"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(labels: &[&str]) -> (Vec<u32>, Vec<String>) {
        let mut found = Labels::new(None);
        labels.iter().for_each(|label| found.push(label).unwrap());
        found.finish()
    }

    #[test]
    fn integers_sort_by_value_and_names_by_name() {
        let (labels, classes) = finish(&["10", "9", "-1", "10"]);
        assert_eq!((labels, classes.join(" ")), (vec![2, 1, 0, 2], "-1 9 10".to_string()));
        let (labels, classes) = finish(&["10", "9", "x"]);
        assert_eq!((labels, classes.join(" ")), (vec![0, 1, 2], "10 9 x".to_string()));
    }

    #[test]
    fn known_classes_keep_their_order_and_admit_no_other() {
        let known = ["setosa".to_string(), "virginica".to_string(), "another".to_string()];
        let mut labels = Labels::new(Some(&known));
        labels.push("another").unwrap();
        let error = labels.push("virginca").unwrap_err();
        assert_eq!(
            error,
            "label 'virginca' is not one of the known classes 'setosa', 'virginica', 'another'; did you mean 'virginica'?"
        );
        assert!(!labels.push("zzz").unwrap_err().contains("did you mean"));
        assert_eq!(labels.push("").unwrap_err(), "the label is empty");
        assert_eq!(labels.finish(), (vec![2], known.to_vec()));
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (100..150).map(|i| i.to_string()).collect();
        assert!(listed("x", &names).ends_with("'119' and 30 more"));
    }
}
