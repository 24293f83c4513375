//! Sizes: of tensors, windows, borders and files.

use super::reader::Wrong;
use super::tree::{Node, Value};
use super::values::{Form, array, either, list, unless, whole};
use crate::nn::layers::Padding;

/// Most dimensions of a shape: beyond any use.
const MOST_DIMENSIONS: usize = 16;

/// The dimensions of a tensor.
pub(super) fn shape() -> Form<Vec<usize>> {
    let dims = list(whole(1..));
    let read = move |path: &str, node: &Node| match dims.read(path, node)? {
        dims if dims.len() <= MOST_DIMENSIONS => Ok(dims),
        _ => Err(Wrong::Expected(format!("at most {MOST_DIMENSIONS} dimensions"))),
    };
    Form::new(list(whole::<usize>(1..)).allowed, read, |dims| format!("{dims:?}"))
}

/// A number for both directions, or \[vertical, horizontal\].
pub(super) fn pair(least: u32) -> Form<[usize; 2]> {
    let both = whole(least..).map(|v| [v; 2], |pair: &[usize; 2]| pair[0]);
    either(both, "[vertical, horizontal]", array("", whole(least..)))
}

/// A number, \[vertical, horizontal\] or \[top, bottom, left, right\].
pub(super) fn sides() -> Form<[usize; 4]> {
    let both = pair(0).map(|[v, h]| [v, v, h, h], |&[v, _, h, _]| [v, h]);
    either(both, "", array("", whole(0..)))
        .described("a whole number, [vertical, horizontal] or [top, bottom, left, right]")
}

/// `"same"`, or what [`sides`] takes.
pub(super) fn padding() -> Form<Padding> {
    let sides = |padding: &Padding| match *padding {
        Padding::Same => None,
        Padding::Sides(sides) => Some(sides),
    };
    unless("same", self::sides())
        .described("\"same\", a whole number, [vertical, horizontal] or [top, bottom, left, right]")
        .map(|sides| sides.map_or(Padding::Same, Padding::Sides), sides)
}

/// `"same"`, a number or \[front, behind\].
pub(super) fn padding1d() -> Form<Option<[usize; 2]>> {
    unless("same", pair(0)).described("\"same\", a whole number or [front, behind]")
}

/// `"2GiB"`, `"512 MiB"` or a plain number of bytes.
pub(super) fn bytes() -> Form<u64> {
    let size = |value: &Value| match value {
        Value::Integer(v) => u64::try_from(*v).ok(),
        Value::String(v) => {
            let digits = v.find(|c: char| !c.is_ascii_digit()).unwrap_or(v.len());
            let units = [("", 0), ("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)];
            let (_, shift) = units.iter().find(|(unit, _)| *unit == v[digits..].trim())?;
            v[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
        }
        _ => None,
    };
    let fits = |v: &u64| (1..=i64::MAX as u64).contains(v);
    Form::plain("a size such as \"2GiB\" or \"512MiB\" or a number of bytes", move |value| size(value).filter(fits))
}
