//! What a value may be: how it is read and written, and what messages and the list of keys say of it. Ranges are
//! checked here.

use std::fmt::{self, Debug, Display};
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

use super::reader::{Read, Section, Wrong};
use super::tree::{Node, Value, quoted};
use crate::error::Result;

/// A key that a run file may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The table that it stands in (`train`, `optimizer.groups`, `model.layers`).
    pub table: String,
    /// The kind that the table must be of to have it (in `data`: the format); `None` where each has it.
    pub kind: Option<&'static str>,
    /// Its name.
    pub name: &'static str,
    /// What it means, in a line.
    pub meaning: &'static str,
    /// What its value may be (type, range, choices), as messages say it.
    pub expected: String,
    /// Its value where it is not given, as TOML, or the name of what that is taken from; `None` where there is none.
    pub default: Option<String>,
}

/// What a value may be, as data.
#[derive(Clone)]
pub(super) enum Allowed {
    /// true or false.
    Flag,
    /// A whole number from this one on, up to another if there is one.
    Whole(u32, Option<u32>),
    /// A finite number within these bounds, and what it is called.
    Number(&'static str, Bound<f64>, Bound<f64>),
    /// One of these words.
    Words(Vec<&'static str>),
    /// A list with such entries, one at least.
    List(Box<Allowed>),
    /// That, or something that is described.
    Or(Box<Allowed>, String),
    /// What only words describe.
    Said(String),
    /// A table or several, or a word for one; what keys such a table has where it is called so.
    Tables(&'static str, fn(&str) -> Vec<Key>),
}

impl From<String> for Allowed {
    fn from(words: String) -> Self {
        Self::Said(words)
    }
}

impl From<&str> for Allowed {
    fn from(words: &str) -> Self {
        Self::Said(words.to_owned())
    }
}

/// As messages say it.
impl Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 1e9, not a row of zeros.
        let short = |v: &f64| if v.abs() < 1e6 { v.to_string() } else { format!("{v:e}") };
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Whole(least, None) => write!(f, "a whole number of at least {least}"),
            Self::Whole(least, Some(most)) => write!(f, "a whole number from {least} to {most}"),
            Self::Number(noun, Bound::Included(low), Bound::Included(high)) => {
                write!(f, "{noun} from {} to {}", short(low), short(high))
            }
            Self::Number(_, low, high) => {
                let low = match low {
                    Bound::Included(low) => format!(" of at least {low}"),
                    Bound::Excluded(low) => format!(" above {low}"),
                    Bound::Unbounded => String::new(),
                };
                match high {
                    Bound::Included(high) => write!(f, "a number{low} and up to {high}"),
                    Bound::Excluded(high) => write!(f, "a number{low} and below {high}"),
                    Bound::Unbounded => write!(f, "a finite number{low}"),
                }
            }
            Self::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
                let (last, most) = words.split_last().expect("there is a word");
                write!(f, "{} or {last}", most.join(", "))
            }
            Self::List(entry) => write!(f, "a list, each entry {entry}"),
            Self::Or(first, other) => write!(f, "{first}, or {other}"),
            Self::Said(words) => f.write_str(words),
            Self::Tables(words, _) => f.write_str(words),
        }
    }
}

/// A value, of its name in messages and what stands there.
type Reader<T> = Box<dyn Fn(&str, &Node) -> Read<T>>;

/// How a value stands in a run file.
pub(super) struct Form<T> {
    /// What it may be.
    pub allowed: Allowed,
    read: Reader<T>,
    write: Box<dyn Fn(&T) -> String>,
}

impl<T: 'static> Form<T> {
    /// A value that `read` takes, which gets its name in messages and what stands there.
    pub fn new(
        allowed: impl Into<Allowed>,
        read: impl Fn(&str, &Node) -> Read<T> + 'static,
        write: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self { allowed: allowed.into(), read: Box::new(read), write: Box::new(write) }
    }

    /// A value that `read` takes from what stands there alone, written as Rust writes it.
    pub fn plain(allowed: impl Into<Allowed>, read: impl Fn(&Value) -> Option<T> + 'static) -> Self
    where
        T: Debug,
    {
        Self::new(allowed, move |_, node| read(&node.value).ok_or(Wrong::Other), |value| format!("{value:?}"))
    }

    /// The same, written as `write` does.
    pub fn written(self, write: impl Fn(&T) -> String + 'static) -> Self {
        Self { write: Box::new(write), ..self }
    }

    /// The same, described by `words` alone.
    pub fn described(self, words: &str) -> Self {
        let Self { read, write, .. } = self;
        let other = |wrong| if let Wrong::Told(_) = wrong { wrong } else { Wrong::Other };
        Self::new(words, move |path, node| read(path, node).map_err(other), write)
    }

    /// What `to` makes of such a value, and `from` takes back.
    pub fn map<U: 'static>(self, to: impl Fn(T) -> U + 'static, from: impl Fn(&U) -> T + 'static) -> Form<U> {
        let Self { allowed, read, write } = self;
        Form::new(allowed, move |path, node| read(path, node).map(&to), move |value| write(&from(value)))
    }

    /// The value that stands in `node`, which messages call `path`.
    pub fn read(&self, path: &str, node: &Node) -> Result<T> {
        let expected = |what: &dyn Display| node.origin.error(format!("{path}: expected {what}, got {}", node.value));
        (self.read)(path, node).map_err(|wrong| match wrong {
            Wrong::Other => expected(&self.allowed),
            Wrong::Expected(words) => expected(&words),
            Wrong::Told(error) => error,
        })
    }

    /// The value as TOML.
    pub fn write(&self, value: &T) -> String {
        (self.write)(value)
    }

    /// The value of the section's `key`, if it is there.
    pub fn take(&self, section: &mut Section, key: &str) -> Result<Option<T>> {
        section.optional(key, |path, node| self.read(path, node))
    }
}

/// true or false.
pub(super) fn flag() -> Form<bool> {
    Form::plain(Allowed::Flag, |value| if let Value::Boolean(v) = value { Some(*v) } else { None })
}

/// A string for which `accept` holds; `words` describe it.
pub(super) fn text_if(words: impl Into<Allowed>, accept: impl Fn(&str) -> bool + 'static) -> Form<String> {
    let read = move |value: &Value| match value {
        Value::String(v) if accept(v) => Some(v.clone()),
        _ => None,
    };
    Form::plain(words, read).written(|text| quoted(text))
}

/// Any string.
pub(super) fn text() -> Form<String> {
    text_if("a string", |_| true)
}

/// The path of a file or folder, relative to the run file (on the command line: to the current folder), which `words`
/// describe.
pub(super) fn file_path(words: &str) -> Form<PathBuf> {
    let read = |_: &str, node: &Node| match &node.value {
        Value::String(path) => Ok(node.origin.resolve(path)?),
        _ => Err(Wrong::Other),
    };
    Form::new(words, read, |path| quoted(&path.to_string_lossy()))
}

/// A whole number in a range.
pub(super) fn whole<T: TryFrom<i64> + Debug + 'static>(range: impl RangeBounds<u32>) -> Form<T> {
    let least = match range.start_bound() {
        Bound::Included(least) => *least,
        Bound::Excluded(below) => below + 1,
        Bound::Unbounded => 0,
    };
    let most = match range.end_bound() {
        Bound::Included(most) => Some(*most),
        Bound::Excluded(above) => Some(above - 1),
        Bound::Unbounded => None,
    };
    let read = move |_: &str, node: &Node| match &node.value {
        Value::Integer(v) if *v >= i64::from(least) && most.is_none_or(|most| *v <= i64::from(most)) => {
            T::try_from(*v).map_err(|_| Wrong::Expected("a smaller whole number".to_owned()))
        }
        _ => Err(Wrong::Other),
    };
    Form::new(Allowed::Whole(least, most), read, |value| format!("{value:?}"))
}

/// Ranges that Rust has no sign for.
type Range = (Bound<f64>, Bound<f64>);
pub(super) const ABOVE_ZERO: Range = (Bound::Excluded(0.0), Bound::Unbounded);
pub(super) const ABOVE_ONE: Range = (Bound::Excluded(1.0), Bound::Unbounded);
/// Above 0 and below 1.
pub(super) const INSIDE: Range = (Bound::Excluded(0.0), Bound::Excluded(1.0));
/// Above 0 and up to 1.
pub(super) const PART: Range = (Bound::Excluded(0.0), Bound::Included(1.0));

/// A finite number in a range.
pub(super) fn number(range: impl RangeBounds<f64>) -> Form<f64> {
    amount("a number", range)
}

/// The same, called `noun`.
pub(super) fn amount(noun: &'static str, range: impl RangeBounds<f64>) -> Form<f64> {
    let range = (range.start_bound().cloned(), range.end_bound().cloned());
    Form::plain(Allowed::Number(noun, range.0, range.1), move |value| {
        let number = match value {
            Value::Integer(v) => *v as f64,
            Value::Float(v) => *v,
            _ => return None,
        };
        Some(number).filter(|v| v.is_finite() && range.contains(v))
    })
}

/// A finite number in a range, in single precision, in which it must still be in the range.
pub(super) fn single(range: impl RangeBounds<f64>) -> Form<f32> {
    let Form { allowed, read, .. } = number(range);
    let words = format!("{allowed} in single precision");
    let read = move |path: &str, node: &Node| {
        let rounded = read(path, node)? as f32;
        let node = Node { value: Value::Float(rounded.into()), origin: node.origin.clone() };
        read(path, &node).map(|_| rounded).map_err(|_| Wrong::Expected(words.clone()))
    };
    Form::new(allowed, read, |value| format!("{value:?}"))
}

/// What `inner` takes, or `word` for none.
pub(super) fn unless<T: 'static>(word: &'static str, inner: Form<T>) -> Form<Option<T>> {
    let Form { allowed, read, write } = inner;
    let either = Allowed::Or(Box::new(allowed.clone()), quoted(word));
    let read = move |path: &str, node: &Node| match &node.value {
        Value::String(v) if v == word => Ok(None),
        _ => read(path, node)
            .map(Some)
            .map_err(|wrong| wrong.reworded(&allowed, |it| format!("{it}, or {}", quoted(word)))),
    };
    Form::new(either, read, move |value| value.as_ref().map_or_else(|| quoted(word), &write))
}

/// What `first` takes, or what `second` does, which `words` describe. Written as `second` is.
pub(super) fn either<T: 'static>(first: Form<T>, words: &'static str, second: Form<T>) -> Form<T> {
    let Form { allowed, read, .. } = first;
    let either = Allowed::Or(Box::new(allowed.clone()), words.to_owned());
    let read = move |path: &str, node: &Node| {
        (second.read)(path, node)
            .or_else(|wrong| if let Wrong::Told(_) = wrong { Err(wrong) } else { read(path, node) })
            .map_err(|wrong| wrong.reworded(&allowed, |it| format!("{it}, or {words}")))
    };
    Form::new(either, read, second.write)
}

/// A list of what `entry` takes, with one entry at least.
pub(super) fn list<T: 'static>(entry: Form<T>) -> Form<Vec<T>> {
    let Form { allowed, read, write } = entry;
    let several = Allowed::List(Box::new(allowed.clone()));
    let read = move |path: &str, node: &Node| match &node.value {
        Value::List(items) if !items.is_empty() => {
            let entries = items.iter().map(|item| read(path, item)).collect::<Read<_>>();
            entries.map_err(|wrong| wrong.reworded(&allowed, |it| format!("a list, each entry {it}")))
        }
        _ => Err(Wrong::Expected("a list with at least one entry".to_owned())),
    };
    let write = move |items: &Vec<T>| format!("[{}]", items.iter().map(&write).collect::<Vec<_>>().join(", "));
    Form::new(several, read, write)
}

/// A list of as many entries as the array has, which `words` describe.
pub(super) fn array<T: Debug + 'static, const N: usize>(words: &str, entry: Form<T>) -> Form<[T; N]> {
    let list = list(entry);
    let read = move |path: &str, node: &Node| (list.read)(path, node)?.try_into().map_err(|_| Wrong::Other);
    Form::new(words, read, |value| format!("{value:?}")).described(words)
}

/// One of some words; `name` has the value's.
pub(super) fn named<T: Clone + 'static>(
    options: Vec<(&'static str, T)>,
    name: impl Fn(&T) -> &'static str + 'static,
) -> Form<T> {
    let allowed = Allowed::Words(options.iter().map(|(name, _)| *name).collect());
    let read = move |_: &str, node: &Node| match &node.value {
        Value::String(word) => options.iter().find(|(name, _)| name == word).map(|(_, option)| option.clone()),
        _ => None,
    };
    Form::new(allowed, move |path, node| read(path, node).ok_or(Wrong::Other), move |value| quoted(name(value)))
}

/// The same of a table of them.
pub(super) fn choice<T: Clone + PartialEq + 'static>(options: &'static [(&'static str, T)]) -> Form<T> {
    let name = |value: &T| options.iter().find(|(_, option)| option == value).expect("every option has a name").0;
    named(options.to_vec(), name)
}

/// Tables as a list, one a line.
pub(super) fn rows(tables: impl Iterator<Item = String>) -> String {
    let rows: String = tables.map(|table| format!("    {table},\n")).collect();
    if rows.is_empty() { "[]".to_owned() } else { format!("[\n{rows}]") }
}
