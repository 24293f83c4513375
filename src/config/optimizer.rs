//! `[optimizer]`: the update rule, its settings, and groups of parameters with settings of their own.

use super::reader::{Read, Section, below_one, choice, flag, list, not_negative, positive, single, text};
use super::train::{unless, write_unless};
use super::tree::{Node, Value, quoted};
use crate::error::Result;
use crate::optim::{Group, Groups, Optimizer};

/// `[optimizer]`.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerConfig {
    /// Learning rate at the end of the warm-up.
    pub lr: f64,
    /// Update rule.
    pub rule: Optimizer,
    /// Parameters that are treated otherwise than the rest.
    pub groups: Groups,
    /// Decay of the moving average of the weights.
    pub ema_decay: Option<f64>,
}

/// A setting of an optimizer, in place.
enum Setting<'a> {
    Number(&'a mut f32, fn(&Value) -> Read<f64>),
    Pair([&'a mut f32; 2], fn(&Value) -> Read<f64>, &'static str),
    Flag(&'a mut bool),
}

/// The keys of an optimizer's settings.
fn settings(rule: &mut Optimizer) -> Vec<(&'static str, Setting<'_>)> {
    use Setting::{Flag, Number, Pair};
    let betas = |a, b| ("betas", Pair([a, b], below_one, "two numbers of at least 0 and below 1"));
    let decay = |value| ("weight_decay", Number(value, not_negative));
    match rule {
        Optimizer::Sgd { momentum, nesterov, weight_decay } => {
            vec![("momentum", Number(momentum, below_one)), ("nesterov", Flag(nesterov)), decay(weight_decay)]
        }
        Optimizer::Adam { beta1, beta2, epsilon, weight_decay }
        | Optimizer::AdamW { beta1, beta2, epsilon, weight_decay } => {
            vec![betas(beta1, beta2), ("epsilon", Number(epsilon, positive)), decay(weight_decay)]
        }
        Optimizer::RmsProp { alpha, epsilon, momentum, centered, weight_decay } => vec![
            ("alpha", Number(alpha, below_one)),
            ("epsilon", Number(epsilon, positive)),
            ("momentum", Number(momentum, below_one)),
            ("centered", Flag(centered)),
            decay(weight_decay),
        ],
        Optimizer::Adagrad { lr_decay, epsilon, initial_accumulator, weight_decay } => vec![
            ("lr_decay", Number(lr_decay, not_negative)),
            ("epsilon", Number(epsilon, positive)),
            ("initial_accumulator", Number(initial_accumulator, not_negative)),
            decay(weight_decay),
        ],
        Optimizer::Lion { beta1, beta2, weight_decay } => vec![betas(beta1, beta2), decay(weight_decay)],
        Optimizer::Lamb { beta1, beta2, epsilon, clamp: [low, high], weight_decay } => vec![
            betas(beta1, beta2),
            ("epsilon", Number(epsilon, positive)),
            ("clamp", Pair([low, high], not_negative, "two finite numbers of at least 0, the lower one first")),
            decay(weight_decay),
        ],
    }
}

/// Most groups, and most bytes of a pattern: each is held against every parameter's name.
const MOST_GROUPS: usize = 1000;
const MOST_PATTERN: usize = 256;

impl OptimizerConfig {
    pub(super) fn read(mut section: Section) -> Result<Self> {
        let kinds = [
            (Optimizer::adamw(), 0.001),
            (Optimizer::adam(), 0.001),
            (Optimizer::sgd(0.9), 0.01),
            (Optimizer::rmsprop(), 0.01),
            (Optimizer::adagrad(), 0.01),
            (Optimizer::lion(), 1e-4),
            (Optimizer::lamb(), 0.001),
        ];
        let named = kinds.map(|(rule, lr)| (rule.name(), (rule, lr)));
        let (mut rule, lr) = section.get("kind", kinds[0], choice(&named))?;
        let lr = section.get("lr", lr, positive)?;
        for (key, setting) in settings(&mut rule) {
            match setting {
                Setting::Number(value, read) => *value = section.get(key, *value, single(read))?,
                Setting::Flag(value) => *value = section.get(key, *value, flag)?,
                Setting::Pair(values, read, expected) => {
                    let pair = section.optional(key, |given| {
                        let pair: Option<[f32; 2]> = list(single(read))(given).ok().and_then(|v| v.try_into().ok());
                        pair.ok_or_else(|| expected.to_owned())
                    })?;
                    let pairs = values.into_iter().zip(pair.into_iter().flatten());
                    pairs.for_each(|(value, given)| *value = given);
                }
            }
        }
        let groups = Groups {
            decay_rank_1: section.get("decay_rank_1", false, flag)?,
            list: match section.take("groups") {
                None => Vec::new(),
                Some(node @ Node { value: Value::List(_), .. }) if node.item(MOST_GROUPS + 1).is_some() => {
                    return Err(section.mismatch("groups", &node, &format!("at most {MOST_GROUPS} groups")));
                }
                Some(Node { value: Value::List(groups), .. }) => {
                    groups.into_iter().enumerate().map(|(i, node)| group(i + 1, node)).collect::<Result<_>>()?
                }
                Some(node) => return Err(section.mismatch("groups", &node, "a list of tables, each with a match")),
            },
        };
        let ema_decay = section.get("ema_decay", None, unless("none", below_one))?;
        section.finish()?;
        Ok(Self { lr, rule, groups, ema_decay })
    }

    pub(super) fn write(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![("kind", quoted(self.rule.name())), ("lr", format!("{:?}", self.lr))];
        entries.extend(settings(&mut self.rule.clone()).into_iter().map(|(key, setting)| {
            let value = match setting {
                Setting::Number(value, _) => format!("{value:?}"),
                Setting::Pair(values, ..) => format!("{values:?}"),
                Setting::Flag(value) => value.to_string(),
            };
            (key, value)
        }));
        entries.push(("decay_rank_1", self.groups.decay_rank_1.to_string()));
        let groups: Vec<_> = self.groups.list.iter().map(|group| format!("    {},\n", write_group(group))).collect();
        entries.push(("groups", if groups.is_empty() { "[]".to_owned() } else { format!("[\n{}]", groups.concat()) }));
        entries.push(("ema_decay", write_unless("none", &self.ema_decay)));
        entries
    }
}

/// Names of parameters.
fn pattern(value: &Value) -> Read<String> {
    text(value)
        .ok()
        .filter(|v| v.len() <= MOST_PATTERN)
        .ok_or_else(|| format!("a string of at most {MOST_PATTERN} bytes"))
}

/// One of `[[optimizer.groups]]`, the `number`-th.
fn group(number: usize, node: Node) -> Result<Group> {
    let mut section = Section::new(&format!("optimizer.groups[{number}]"), node)?;
    let group = Group {
        pattern: section.required("match", "the parameters' names, such as \"*.bias\"", pattern)?,
        lr_scale: section.get("lr_scale", 1.0, single(not_negative))?,
        weight_decay: section.optional("weight_decay", single(not_negative))?,
        frozen: section.get("frozen", false, flag)?,
    };
    section.finish()?;
    Ok(group)
}

fn write_group(group: &Group) -> String {
    let decay = group.weight_decay.map(|decay| format!(", weight_decay = {decay:?}")).unwrap_or_default();
    let (pattern, scale, frozen) = (quoted(&group.pattern), group.lr_scale, group.frozen);
    format!("{{ match = {pattern}, lr_scale = {scale:?}{decay}, frozen = {frozen} }}")
}
