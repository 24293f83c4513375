//! `[optimizer]`: the update rule, its settings, and groups of parameters with settings of their own.

use super::fields::{self, Fields, Kinds, Settings};
use super::reader::Wrong;
use super::tree::{Node, Value};
use super::values::{ABOVE_ZERO, Allowed, Form, array, flag, number, rows, single, text_if, unless};
use crate::optim::{Group, Optimizer};
use crate::train::TrainOptions;

/// Most groups, and most bytes of a pattern: each is held against every parameter's name.
const MOST_GROUPS: usize = 1000;
const MOST_PATTERN: usize = 256;

impl Kinds for Optimizer {
    fn all() -> Vec<(&'static str, Self)> {
        let rules =
            [Self::adamw(), Self::adam(), Self::sgd(0.9), Self::rmsprop(), Self::adagrad(), Self::lion(), Self::lamb()];
        rules.map(|rule| (rule.name(), rule)).into()
    }
}

impl Settings for Optimizer {
    fn fields(&mut self, f: &mut Fields<'_>) {
        fn betas(f: &mut Fields<'_>, beta1: &mut f32, beta2: &mut f32) {
            let mut betas = [*beta1, *beta2];
            let form = array("two numbers of at least 0 and below 1", single(0.0..1.0));
            f.field("betas", "What is kept of the moving averages at each step", form, &mut betas);
            [*beta1, *beta2] = betas;
        }
        fn epsilon(f: &mut Fields<'_>, epsilon: &mut f32) {
            f.field("epsilon", "Added to what is divided by", single(ABOVE_ZERO), epsilon);
        }
        fn momentum(f: &mut Fields<'_>, momentum: &mut f32) {
            f.field("momentum", "What is kept of the last update", single(0.0..1.0), momentum);
        }
        let decay = match self {
            Self::Sgd { momentum: kept, nesterov, weight_decay } => {
                momentum(f, kept);
                f.field("nesterov", "Nesterov's form of the momentum", flag(), nesterov);
                weight_decay
            }
            Self::Adam { beta1, beta2, epsilon: added, weight_decay }
            | Self::AdamW { beta1, beta2, epsilon: added, weight_decay } => {
                betas(f, beta1, beta2);
                epsilon(f, added);
                weight_decay
            }
            Self::RmsProp { alpha, epsilon: added, momentum: kept, centered, weight_decay } => {
                f.field("alpha", "What is kept of the moving average at each step", single(0.0..1.0), alpha);
                epsilon(f, added);
                momentum(f, kept);
                f.field("centered", "Whether the mean is taken off first", flag(), centered);
                weight_decay
            }
            Self::Adagrad { lr_decay, epsilon: added, initial_accumulator, weight_decay } => {
                f.field("lr_decay", "How fast the learning rate falls", single(0.0..), lr_decay);
                epsilon(f, added);
                let start = "What the sum of squares starts with";
                f.field("initial_accumulator", start, single(0.0..), initial_accumulator);
                weight_decay
            }
            Self::Lion { beta1, beta2, weight_decay } => {
                betas(f, beta1, beta2);
                weight_decay
            }
            Self::Lamb { beta1, beta2, epsilon: added, clamp, weight_decay } => {
                betas(f, beta1, beta2);
                epsilon(f, added);
                let bounds = array("two finite numbers of at least 0, the lower one first", single(0.0..));
                f.field("clamp", "Bounds of a parameter's norm", bounds, clamp);
                weight_decay
            }
        };
        f.field("weight_decay", "How fast weights fall towards 0", single(0.0..), decay);
    }
}

impl Settings for Group {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let pattern = text_if(format!("a string of at most {MOST_PATTERN} bytes"), |v| v.len() <= MOST_PATTERN);
        f.required("match", "the parameters' names, such as \"*.bias\"", pattern, &mut self.pattern);
        f.field("lr_scale", "What the learning rate is multiplied by", single(0.0..), &mut self.lr_scale);
        f.optional("weight_decay", "Weight decay in the optimizer's place", single(0.0..), &mut self.weight_decay);
        f.field("frozen", "Whether the parameters stay as they are", flag(), &mut self.frozen);
    }
}

fn groups() -> Form<Vec<Group>> {
    const WORDS: &str = "a list of tables, each with a match";
    let read = |path: &str, node: &Node| match &node.value {
        Value::List(groups) if groups.len() > MOST_GROUPS => {
            Err(Wrong::Expected(format!("at most {MOST_GROUPS} groups")))
        }
        Value::List(groups) => {
            let group = |(i, node)| Ok(fields::table(&format!("{path}[{}]", i + 1), node, Group::new(""))?);
            groups.iter().enumerate().map(group).collect()
        }
        _ => Err(Wrong::Other),
    };
    let keys = |table: &str| fields::keys(table, |f| Group::new("").fields(f));
    let write = |groups: &Vec<Group>| rows(groups.iter().map(|group| fields::inline(|f| group.clone().fields(f))));
    Form::new(Allowed::Tables(WORDS, keys), read, write)
}

/// The section's fields.
pub(super) fn fields(train: &mut TrainOptions, f: &mut Fields<'_>) {
    f.kind("kind", "The update rule", &mut train.optimizer);
    let rate = match train.optimizer {
        Optimizer::Sgd { .. } | Optimizer::RmsProp { .. } | Optimizer::Adagrad { .. } => 0.01,
        Optimizer::Lion { .. } => 1e-4,
        _ => 0.001,
    };
    let base = &mut train.schedule.base;
    f.derived("lr", "Learning rate at the end of the warm-up", number(ABOVE_ZERO), ("by kind", rate), base);
    f.settings(&mut train.optimizer);
    let rank_1 = &mut train.groups.decay_rank_1;
    f.field("decay_rank_1", "Whether parameters of one dimension decay, too", flag(), rank_1);
    f.field("groups", "Parameters with settings of their own", groups(), &mut train.groups.list);
    let average = "Decay of a moving average of the weights";
    f.field("ema_decay", average, unless("none", number(0.0..1.0)), &mut train.ema_decay);
}
