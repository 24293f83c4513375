//! Which parameter is treated how: groups by name pattern, each with its own learning rate and weight decay, or frozen.

use super::Optimizer;
use crate::error::{Error, Result, nearest};
use crate::plan::{Layout, Placed, Role};

/// Parameters with settings of their own, by a pattern of their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// A whole name, in which `*` stands for any characters (also none) and `?` for one: `*.bias`, `encoder.*`.
    pub pattern: String,
    /// What the learning rate is multiplied by.
    pub lr_scale: f32,
    /// Weight decay in the place of the optimizer's, whatever the parameters' rank; `None`: as without the group.
    pub weight_decay: Option<f32>,
    /// Leaves the parameters as they are, and out of the gradient's norm.
    pub frozen: bool,
}

impl Group {
    /// The parameters that match `pattern`, treated like all others.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self { pattern: pattern.into(), lr_scale: 1.0, weight_decay: None, frozen: false }
    }

    /// Whether a parameter of this name is in the group, if no earlier one has it.
    pub fn matches(&self, name: &str) -> bool {
        matches(self.pattern.as_bytes(), name.as_bytes())
    }

    /// Checks the settings of the `number`-th group.
    fn validate(&self, number: usize) -> Result<()> {
        let check = |key: &str, value: f32| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => {
                let message = format!("expected a finite number, 0 or more, for \"{}\", got {value}", self.pattern);
                Err(Error::invalid(format!("optimizer.groups[{number}].{key}"), message))
            }
        };
        check("lr_scale", self.lr_scale)?;
        check("weight_decay", self.weight_decay.unwrap_or(0.0))
    }
}

/// Whether `name` is `pattern`, `*` being any bytes and `?` any one. What does not fit is tried again one byte behind
/// the last `*` alone: what earlier ones stand for may stay as short as it is.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Behind the last `*`, and where the name's part for what follows it begins.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                p += 1;
                retry = Some((p, n));
            }
            (Some(&wanted), Some(&given)) if wanted == b'?' || wanted == given => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((behind, begin)) if begin < name.len() => {
                    retry = Some((behind, begin + 1));
                    (p, n) = (behind, begin + 1);
                }
                _ => return false,
            },
        }
    }
}

/// How all parameters are treated. The default: like one another, but for those of rank 1, whose weights do not decay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Groups {
    /// Whether parameters of rank 1 (biases and the scales of normalisations) decay by the optimizer's weight decay.
    pub decay_rank_1: bool,
    /// The first that matches a parameter holds for it.
    pub list: Vec<Group>,
}

/// What an update does to a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Treatment {
    /// What the learning rate is multiplied by.
    pub lr_scale: f32,
    /// Its weight decay.
    pub weight_decay: f32,
}

impl Groups {
    /// What an update by `optimizer` does to `parameter`; `None` when it is not updated and no part of the norm: when
    /// it is frozen, or a running statistic.
    pub fn treatment(&self, optimizer: &Optimizer, parameter: &Placed) -> Option<Treatment> {
        if parameter.role != Role::Trained {
            return None;
        }
        let group = self.list.iter().find(|group| group.matches(&parameter.name));
        let decays = self.decay_rank_1 || parameter.shape.rank() > 1;
        let common = if decays { optimizer.weight_decay() } else { 0.0 };
        match group {
            Some(group) if group.frozen => None,
            Some(group) => {
                Some(Treatment { lr_scale: group.lr_scale, weight_decay: group.weight_decay.unwrap_or(common) })
            }
            None => Some(Treatment { lr_scale: 1.0, weight_decay: common }),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When one is outside its range.
    pub fn validate(&self) -> Result<()> {
        self.list.iter().enumerate().try_for_each(|(i, group)| group.validate(i + 1))
    }

    /// Checks that each group's pattern matches a parameter of `layout`, and that some parameter is not frozen.
    ///
    /// # Errors
    /// When one matches none: the message lists the parameters with the names nearest to it.
    pub fn check(&self, layout: &Layout) -> Result<()> {
        let parameters: Vec<&Placed> = layout.parameters().iter().filter(|p| p.role == Role::Trained).collect();
        for (i, group) in self.list.iter().enumerate() {
            if !parameters.iter().any(|p| group.matches(&p.name)) {
                let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
                let near = nearest(&group.pattern, names).join(", ");
                let message = format!("\"{}\" matches no parameter; the nearest names are: {near}", group.pattern);
                return Err(Error::invalid(format!("optimizer.groups[{}].match", i + 1), message));
            }
        }
        let frozen = |p: &&Placed| self.list.iter().find(|g| g.matches(&p.name)).is_some_and(|g| g.frozen);
        if !parameters.is_empty() && parameters.iter().all(frozen) {
            return Err(Error::invalid("optimizer.groups", "all parameters are frozen: there is nothing to train"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Init};
    use crate::kernel::Target;

    fn layout() -> Layout {
        let mut graph = Graph::new();
        for (name, shape) in [("encoder.weight", &[3, 5][..]), ("encoder.bias", &[5]), ("head.bias", &[2])] {
            graph.parameter(name, shape.to_vec(), Init::Zeros).unwrap();
        }
        Layout::new(&graph, &Target::default()).unwrap()
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*.bias", "head.bias", true),
            ("*.bias", "head.bias_2", false),
            ("*.bias", ".bias", true),
            ("encoder.*", "encoder.weight", true),
            ("encoder.*", "my.encoder.weight", false),
            ("*norm*.weight", "layer_norm_1.weight", true),
            ("linear_?.weight", "linear_2.weight", true),
            ("linear_?.weight", "linear_12.weight", false),
            ("*a*b*a*", "xaxbxax", true),
            ("*a*b*a*", "xaxbx", false),
            ("", "", true),
            ("w", "w", true),
            ("w", "W", false),
        ] {
            assert_eq!(Group::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_group_that_matches_holds() {
        let layout = layout();
        let list = vec![
            Group { weight_decay: Some(0.5), lr_scale: 0.1, ..Group::new("head.*") },
            Group { frozen: true, ..Group::new("*.bias") },
        ];
        let optimizer = Optimizer::adamw();
        let all = |groups: &Groups| -> Vec<_> {
            let treatment = |p| groups.treatment(&optimizer, p).map(|t| (t.lr_scale, t.weight_decay));
            layout.parameters().iter().map(treatment).collect()
        };
        assert_eq!(all(&Groups { decay_rank_1: false, list }), [Some((1.0, 0.01)), None, Some((0.1, 0.5))]);
        assert_eq!(all(&Groups::default()), [Some((1.0, 0.01)), Some((1.0, 0.0)), Some((1.0, 0.0))]);
        assert_eq!(all(&Groups { decay_rank_1: true, list: vec![] }), [Some((1.0, 0.01)); 3]);
    }

    #[test]
    fn a_pattern_that_matches_nothing_lists_near_names() {
        let message = |list| Groups { list, ..Groups::default() }.check(&layout()).unwrap_err().to_string();
        assert_eq!(
            message(vec![Group::new("*.bias"), Group::new("head.biass")]),
            "optimizer.groups[2].match: \"head.biass\" matches no parameter; the nearest names are: head.bias, encoder.bias, \
             encoder.weight"
        );
        let frozen = message(vec![Group { frozen: true, ..Group::new("*") }]);
        assert!(frozen.contains("all parameters are frozen"), "{frozen}");
        assert!(Groups::default().check(&layout()).is_ok());
    }

    #[test]
    fn settings_are_checked() {
        for group in [
            Group { lr_scale: f32::NAN, ..Group::new("*") },
            Group { lr_scale: -1.0, ..Group::new("*") },
            Group { weight_decay: Some(f32::INFINITY), ..Group::new("*") },
        ] {
            assert!(Groups { list: vec![group], ..Groups::default() }.validate().is_err());
        }
    }
}
