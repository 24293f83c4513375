//! The fields of a table, described once: reading, writing and the list of all keys with their defaults come from the
//! same description, which names each field, says what it means and what it may be, and where its value is.

use super::reader::{Section, Wrong};
use super::tree::{Node, Value, quoted};
use super::values::{Allowed, Form, Key, named};
use crate::error::Result;

/// Something with fields of its own.
pub(super) trait Settings {
    /// Describes them, in their order in a file. What is not given stays as it is: those of a new one are the defaults.
    fn fields(&mut self, _: &mut Fields<'_>) {}
}

/// Something that is of one of several kinds.
pub(super) trait Kinds: Settings + Clone + 'static {
    /// One of each kind with its defaults, by its name.
    fn all() -> Vec<(&'static str, Self)>;

    /// The name of its kind.
    fn kind(&self) -> &'static str {
        let alike = |other: &Self| std::mem::discriminant(other) == std::mem::discriminant(self);
        Self::all().into_iter().find(|(_, other)| alike(other)).map(|(name, _)| name).expect("every kind is listed")
    }
}

/// What is done with the fields that a description names.
pub(super) struct Fields<'a>(Task<'a>);

enum Task<'a> {
    /// They get what the section says, up to the first that cannot be read.
    Read(&'a mut Section, Result<()>),
    /// Their values are written.
    Write(&'a mut Vec<(&'static str, String)>),
    /// They are listed, those of all kinds: the table, the kind, the list.
    List(&'a str, Option<&'static str>, &'a mut Vec<Key>),
}

/// Gives the fields what `section` says, which may have others.
pub(super) fn fill(section: &mut Section, describe: impl FnOnce(&mut Fields<'_>)) -> Result<()> {
    let mut fields = Fields(Task::Read(section, Ok(())));
    describe(&mut fields);
    if let Task::Read(_, read) = fields.0 { read } else { Ok(()) }
}

/// `new` with what `section` says, which has nothing else.
fn filled<T: Settings>(mut section: Section, mut new: T) -> Result<T> {
    fill(&mut section, |f| new.fields(f))?;
    section.finish().map(|()| new)
}

/// The same with what the table `node` says, which messages call `path`.
pub(super) fn table<T: Settings>(path: &str, node: &Node, new: T) -> Result<T> {
    filled(Section::new(path, node.clone())?, new)
}

/// The fields with their values as TOML.
pub(super) fn entries(describe: impl FnOnce(&mut Fields<'_>)) -> Vec<(&'static str, String)> {
    let mut entries = Vec::new();
    describe(&mut Fields(Task::Write(&mut entries)));
    entries
}

/// The same as an inline table.
pub(super) fn inline(describe: impl FnOnce(&mut Fields<'_>)) -> String {
    let entries: Vec<_> = entries(describe).into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", entries.join(", "))
}

/// The keys of the table `table`.
pub(super) fn keys(table: &str, describe: impl FnOnce(&mut Fields<'_>)) -> Vec<Key> {
    let mut keys = Vec::new();
    describe(&mut Fields(Task::List(table, None, &mut keys)));
    keys
}

impl Fields<'_> {
    /// A field that keeps its value where none is given.
    pub fn field<T: 'static>(&mut self, key: &'static str, meaning: &'static str, form: Form<T>, value: &mut T) {
        self.reading(|section| form.take(section, key).map(|given| given.into_iter().for_each(|given| *value = given)));
        let written = form.write(value);
        self.shown(key, meaning, form.allowed, Some(written.clone()), Some(written));
    }

    /// The same, where the default depends on other fields: what it is called, and what it is.
    pub fn derived<T: 'static>(
        &mut self,
        key: &'static str,
        meaning: &'static str,
        form: Form<T>,
        (name, default): (&str, T),
        value: &mut T,
    ) {
        self.reading(|section| form.take(section, key).map(|given| *value = given.unwrap_or(default)));
        let written = form.write(value);
        self.shown(key, meaning, form.allowed, Some(written), Some(name.to_owned()));
    }

    /// A field that must be given.
    pub fn required<T: 'static>(&mut self, key: &'static str, meaning: &'static str, form: Form<T>, value: &mut T) {
        self.reading(|section| {
            *value = form.take(section, key)?.ok_or_else(|| section.missing(key, meaning))?;
            Ok(())
        });
        let written = form.write(value);
        self.shown(key, meaning, form.allowed, Some(written), None);
    }

    /// A field that may have no value, which is then not written.
    pub fn optional<T: 'static>(
        &mut self,
        key: &'static str,
        meaning: &'static str,
        form: Form<T>,
        value: &mut Option<T>,
    ) {
        self.reading(|section| form.take(section, key).map(|given| *value = given));
        let written = value.as_ref().map(|value| form.write(value));
        self.shown(key, meaning, form.allowed, written.clone(), written);
    }

    /// The field that says of which kind `value` is; its other fields are those of [`Fields::settings`].
    pub fn kind<T: Kinds>(&mut self, key: &'static str, meaning: &'static str, value: &mut T) {
        self.field(key, meaning, named(T::all(), T::kind), value);
    }

    /// The fields that `value` has for its kind.
    pub fn settings<T: Kinds>(&mut self, value: &mut T) {
        match self.0 {
            Task::List(..) => T::all().into_iter().for_each(|(name, mut new)| self.of_kind(name, |f| new.fields(f))),
            _ => value.fields(self),
        }
    }

    /// Lists the fields that only the kind `name` has.
    pub fn of_kind(&mut self, name: &'static str, describe: impl FnOnce(&mut Fields<'_>)) {
        if let Task::List(table, _, keys) = &mut self.0 {
            describe(&mut Fields(Task::List(table, Some(name), keys)));
        }
    }

    /// Whether there are fields that there are only under this `condition`: the list has all.
    pub fn has(&self, condition: bool) -> bool {
        condition || matches!(self.0, Task::List(..))
    }

    /// Reads what is no plain field.
    pub fn reading(&mut self, read: impl FnOnce(&mut Section) -> Result<()>) {
        if let Task::Read(section, result @ Ok(())) = &mut self.0 {
            *result = read(section);
        }
    }

    /// Writes and lists a field.
    pub fn shown(
        &mut self,
        key: &'static str,
        meaning: &'static str,
        allowed: impl Into<Allowed>,
        written: Option<String>,
        default: Option<String>,
    ) {
        match &mut self.0 {
            Task::Read(..) => {}
            Task::Write(entries) => entries.extend(written.map(|value| (key, value))),
            Task::List(table, kind, keys) => {
                let allowed = allowed.into();
                let (table, expected) = (table.to_string(), allowed.to_string());
                let inner = match allowed {
                    Allowed::Tables(_, inner) => inner(&format!("{table}.{key}")),
                    _ => Vec::new(),
                };
                keys.push(Key { table, kind: *kind, name: key, meaning, expected, default });
                // Several kinds may have tables that are alike.
                inner.into_iter().for_each(|key| {
                    if !keys.contains(&key) {
                        keys.push(key)
                    }
                });
            }
        }
    }
}

/// Something of one of several kinds: a word, or a table with its kind and settings; `words` describe that.
pub(super) fn word_or_table<T: Kinds>(words: &'static str) -> Form<T> {
    fn described<T: Kinds>(f: &mut Fields<'_>, value: &mut T) {
        f.required("kind", "Which one", named(T::all(), T::kind), value);
        f.settings(value);
    }
    let inner = |table: &str| keys(table, |f| described(f, &mut T::all().swap_remove(0).1));
    let read = |path: &str, node: &Node| {
        let kinds = named(T::all(), T::kind);
        let (section, new) = match &node.value {
            Value::String(_) => (Section::empty(path, node.origin.clone()), kinds.read(path, node)?),
            Value::Table(_) => {
                let mut section = Section::new(path, node.clone())?;
                let new = kinds.take(&mut section, "kind")?;
                let new = new.ok_or_else(|| section.missing("kind", &kinds.allowed.to_string()))?;
                (section, new)
            }
            _ => return Err(Wrong::Other),
        };
        Ok(filled(section, new)?)
    };
    let write = |value: &T| {
        let mut value = value.clone();
        match entries(|f| value.fields(f)).is_empty() {
            true => quoted(value.kind()),
            false => inline(|f| described(f, &mut value)),
        }
    };
    Form::new(Allowed::Tables(words, inner), read, write)
}
