//! Whether a run can go on from a checkpoint: what must be as it was, and what can be done where it is not.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::options::TrainOptions;
use super::residuals::{RESIDUAL, held_back};
use super::saved::{State, floats, parse};
use crate::checkpoint::{Snapshot, match_tensors};
use crate::error::{Error, Result};
use crate::optim::AVERAGE;
use crate::tensor::{Named, Shape};

/// Checks that `snapshot` has the state of a run, and a place in it that a run can be at.
///
/// # Errors
/// When it has not.
pub fn check_state(snapshot: &Snapshot) -> Result<()> {
    parse(snapshot).map(drop)
}

/// Checks that `snapshot` is of a network that has learned something.
///
/// # Errors
/// When none of the run's updates was applied: the weights are those that training began with.
pub fn check_trained(snapshot: &Snapshot) -> Result<()> {
    match parse(snapshot)?.position.applied {
        0 => Err(Error::checkpoint(format!("of step {}", snapshot.step), untrained(snapshot.step))),
        _ => Ok(()),
    }
}

/// What to say of a run of `steps` steps without an update.
pub(super) fn untrained(steps: u64) -> String {
    format!(
        "none of the updates of {steps} steps was applied, since gradients were not finite: the weights are those that \
         training began with. Look at the size of inputs and targets (data.scale), and at the learning rate"
    )
}

/// Checks that a run with the optimizer of this name, as run files have it, can go on from `snapshot`.
///
/// # Errors
/// When another optimizer made it: the message names both.
pub(crate) fn check_optimizer(snapshot: &Snapshot, name: &str) -> Result<()> {
    match parse(snapshot)?.optimizer {
        Some(saved) if saved != name => Err(differs("optimizer.kind", &saved, &name)),
        _ => Ok(()),
    }
}

/// The error for a setting that was another one when the checkpoint was made.
fn differs(setting: &str, saved: &dyn Display, now: &dyn Display) -> Error {
    let advice = "put it back as it was, or start a new run from the checkpoint's weights (export, then train --init)";
    Error::invalid(setting, format!("the checkpoint was made with {saved}, this run has {now}; {advice}"))
}

/// Checks that `state` is that of a run with these settings, as far as it cannot go on with others.
pub(super) fn check_settings(state: &State, options: &TrainOptions) -> Result<()> {
    if state.seed != options.seed {
        return Err(differs("train.seed", &state.seed, &options.seed));
    }
    if state.window != options.window() {
        return Err(differs("train.batch × train.accumulate", &state.window, &options.window()));
    }
    if state.shuffle != options.shuffle {
        return Err(differs("train.shuffle", &state.shuffle, &options.shuffle));
    }
    Ok(())
}

/// Checks that `snapshot` holds the weights of the model with parameters `shapes` and the state of the optimizer of
/// `options`, no more and no less.
pub(super) fn check_tensors(snapshot: &Snapshot, shapes: &Named<Shape>, options: &TrainOptions) -> Result<()> {
    match_tensors(format!("of step {}", snapshot.step), shapes, &snapshot.weights)?;
    check_optimizer(snapshot, options.optimizer.name())?;
    check_kept(snapshot, options)?;
    let mut state = Named::default();
    for kind in options.update_rule().moments() {
        state.extend(shapes.iter().map(|(name, shape)| (format!("{name}.{kind}"), shape.clone())))?;
    }
    state.extend(held_back(snapshot, shapes))?;
    match_tensors(format!("of step {} (optimizer)", snapshot.step), &state, &snapshot.optimizer)?;
    let mut tensors = snapshot.weights.iter().chain(&snapshot.optimizer);
    tensors.try_for_each(|(name, tensor)| floats(name, tensor).map(drop))
}

/// Checks that a moving average of the weights, and the optimizer's moments, are in `snapshot` where the run has them.
fn check_kept(snapshot: &Snapshot, options: &TrainOptions) -> Result<()> {
    let mut saved: BTreeSet<&str> = kinds(snapshot);
    let averaged = |yes: bool| if yes { "a moving average of the weights" } else { "no moving average of the weights" };
    let (before, now) = (saved.remove(AVERAGE), options.ema_decay.is_some());
    if before != now {
        return Err(differs("optimizer.ema_decay", &averaged(before), &averaged(now)));
    }
    let moments = options.optimizer.moments().iter().copied().collect();
    if saved != moments {
        let list = |kinds: BTreeSet<&str>| match kinds.is_empty() {
            true => "no moments".to_owned(),
            false => format!("the moments {}", kinds.into_iter().collect::<Vec<_>>().join(", ")),
        };
        return Err(differs("optimizer", &list(saved), &list(moments)));
    }
    Ok(())
}

/// What `snapshot` keeps for parameters, beside what compression held back: the last parts of its tensors' names.
fn kinds(snapshot: &Snapshot) -> BTreeSet<&str> {
    let names = snapshot.optimizer.iter().map(|(name, _)| name.as_str()).filter(|name| !name.contains(RESIDUAL));
    names.filter_map(|name| Some(name.rsplit_once('.')?.1)).collect()
}
