//! Layers of a run file that are made of layers, and `[model.blocks]`: layers that have a name and are used by it, with
//! values for what begins with `$` in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::fields::{Settings, fill};
use super::layers::{self, LayerConfig, LayerSpec};
use super::reader::Section;
use super::tree::{Entry, Node, Origin, Value};
use super::values::text;
use crate::error::{Error, Result, meant};

/// What a run file may hold: guards against names that expand without end.
const MOST_LAYERS: usize = 10_000;
/// How deep lists of layers may nest, named blocks written out: a run file that says so can still be read.
const MOST_DEPTH: usize = 32;
/// How many values (an entry of a table or list each, and each 64 bytes of a string) may be written out in all where
/// blocks are used.
const MOST_VALUES: usize = 500_000;
/// How often a repeat may run.
const MOST_ROUNDS: usize = 1000;

/// The named blocks of a run file while its layers are read.
#[derive(Default)]
pub(super) struct Blocks {
    /// By name.
    defined: BTreeMap<String, Rc<Definition>>,
    /// Names of those that a layer uses.
    used: BTreeSet<String>,
    /// Names of those being read, outermost first.
    open: Vec<String>,
    /// Lists of layers being read, one in the other.
    nested: usize,
    /// Layers read so far.
    layers: usize,
    /// Values written out so far.
    values: usize,
}

/// `[model.blocks.NAME]`.
struct Definition {
    name: String,
    origin: Origin,
    layers: Node,
    /// Values of parameters that a use does not give.
    defaults: Vec<Entry>,
    /// Names of the parameters, without `$`.
    parameters: BTreeSet<String>,
}

impl Blocks {
    /// Reads `[model.blocks]`.
    pub fn read(mut section: Section) -> Result<Self> {
        let mut defined = BTreeMap::new();
        for Entry { key: name, origin, node } in section.take_all() {
            let mut block = Section::new(&format!("{}.{name}", section.name()), node)?;
            let layers = block.take("layers").ok_or_else(|| block.missing("layers", "the block's layers, in order"))?;
            let defaults = block.section("defaults")?.take_all();
            block.finish()?;
            let mut parameters = BTreeSet::new();
            collect(&layers.value, &mut parameters);
            let definition = Definition { name: name.clone(), origin, layers, defaults, parameters };
            if let Some(unknown) = definition.unknown(&definition.defaults) {
                return Err(definition.no_parameter(unknown, "its defaults give"));
            }
            defined.insert(name, Rc::new(definition));
        }
        Ok(Self { defined, ..Self::default() })
    }

    /// The layers of a whole network: the list `node`, which messages call `path`.
    pub fn network(&mut self, path: &str, node: Node) -> Result<Vec<LayerConfig>> {
        let origin = node.origin.clone();
        let layers = self.layers(path, node)?;
        check_count(&layers, 1).map_err(|message| origin.error(format!("{path}: {message}")))?;
        Ok(layers)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// When no layer uses one of them.
    pub fn finish(self) -> Result<()> {
        let unused = self.defined.values().filter(|block| !self.used.contains(&block.name));
        match unused.min_by_key(|block| block.origin.line()) {
            Some(block) => Err(block.origin.error(format!("model.blocks.{}: no layer uses this block", block.name))),
            None => Ok(()),
        }
    }

    /// The layers of the list `node`, which messages call `path`.
    pub fn layers(&mut self, path: &str, node: Node) -> Result<Vec<LayerConfig>> {
        let origin = node.origin;
        let layers = match node.value {
            Value::List(layers) => layers,
            other => return Err(origin.error(format!("{path}: expected a list of layers, got {other}"))),
        };
        self.layers += layers.len();
        if self.layers > MOST_LAYERS {
            let message = format!("{path}: expected at most {MOST_LAYERS} layers, blocks written out; use a repeat");
            return Err(origin.error(message));
        }
        if self.nested == MOST_DEPTH {
            return Err(origin.error(format!("{path}: layers nest deeper than {MOST_DEPTH}")));
        }
        self.nested += 1;
        let layers = layers.into_iter().enumerate();
        let layers = layers.map(|(i, node)| self.layer(&format!("{path}[{}]", i + 1), node)).collect();
        self.nested -= 1;
        layers
    }

    /// The layer that messages call `path`: a table with a kind, or only the kind as a string.
    fn layer(&mut self, path: &str, node: Node) -> Result<LayerConfig> {
        let (layer, mut section) = match &node.value {
            Value::String(_) => (layers::kind().read(path, &node)?, Section::empty(path, node.origin)),
            _ => {
                let mut section = Section::new(path, node)?;
                let layer = layers::kind().take(&mut section, "kind")?;
                let missing = || section.missing("kind", &format!("one of {}", layers::kinds()));
                (layer.ok_or_else(missing)?, section)
            }
        };
        let mut config = LayerConfig { name: None, init: None, layer };
        fill(&mut section, |f| config.fields(f))?;
        match &mut config.layer {
            LayerSpec::Block { layers } => *layers = self.body(&mut section)?,
            LayerSpec::Repeat { times, layers } => {
                if *times > MOST_ROUNDS {
                    let message = format!("{path}.times: expected at most {MOST_ROUNDS}, got {times}");
                    return Err(section.error(message));
                }
                *layers = self.body(&mut section)?;
                check_count(layers, *times).map_err(|message| section.error(format!("{path}: {message}")))?;
            }
            LayerSpec::Residual { layers, shortcut } => {
                *layers = self.body(&mut section)?;
                if let Some(node) = section.take("shortcut") {
                    *shortcut = self.layers(&format!("{path}.shortcut"), node)?;
                }
            }
            _ => {}
        }
        section.finish()?;
        Ok(config)
    }

    /// The layers that `section` holds, or uses by name.
    fn body(&mut self, section: &mut Section) -> Result<Vec<LayerConfig>> {
        let name = text().take(section, "use")?;
        let with = if name.is_some() { section.section("with")?.take_all() } else { Vec::new() };
        let layers = match (name, section.take("layers")) {
            (Some(name), None) => self.used(section, &name, with)?,
            (None, Some(node)) => self.layers(&format!("{}.layers", section.name()), node)?,
            (Some(_), Some(_)) => {
                let message = format!("{}: expected either layers or the block to use, got both", section.name());
                return Err(section.error(message));
            }
            (None, None) => return Err(section.missing("layers", "the layers, in order; or use = the name of a block")),
        };
        if layers.is_empty() {
            return Err(section.error(format!("{}: expected at least one layer, got none", section.name())));
        }
        Ok(layers)
    }

    /// The layers of the block `name`, used by `section` with these values.
    fn used(&mut self, section: &Section, name: &str, with: Vec<Entry>) -> Result<Vec<LayerConfig>> {
        let error = |message: String| Err(section.error(format!("{}: {message}", section.name())));
        let Some(block) = self.defined.get(name).cloned() else {
            let names = || self.defined.keys().map(String::as_str);
            return error(match meant(name, names()) {
                Some(near) => format!("there is no block '{name}'; did you mean '{near}'?"),
                None if self.defined.is_empty() => format!("there is no block '{name}'; define [model.blocks.{name}]"),
                None => format!("there is no block '{name}'; known: {}", names().collect::<Vec<_>>().join(", ")),
            });
        };
        self.used.insert(name.to_owned());
        if self.open.iter().any(|open| open == name) {
            return error(format!("a block cannot contain itself: {} → {name}", self.open.join(" → ")));
        }
        if let Some(unknown) = block.unknown(&with) {
            return Err(block.no_parameter(unknown, &format!("{} gives", section.name())));
        }
        // The use's values take the place of the defaults.
        let values: HashMap<&str, &Node> =
            block.defaults.iter().chain(&with).map(|value| (value.key.as_str(), &value.node)).collect();
        if let Some(missing) = block.parameters.iter().find(|name| !values.contains_key(name.as_str())) {
            return error(format!("block '{name}' needs a value: with = {{ {missing} = … }}"));
        }
        self.values += values.len();
        let layers = substituted(&block.layers, &values, &mut self.values).ok_or_else(|| {
            let message =
                format!("{}: blocks written out are beyond {MOST_VALUES} values; use a repeat", section.name());
            section.error(message)
        })?;
        self.open.push(name.to_owned());
        let layers = self.layers(&format!("{} → {name}.layers", section.name()), layers);
        self.open.pop();
        layers
    }
}

/// How many layers these are, repeats counted as often as they run.
fn expanded(layers: &[LayerConfig]) -> usize {
    let of = |layer: &LayerConfig| match &layer.layer {
        LayerSpec::Block { layers } => expanded(layers),
        LayerSpec::Repeat { times, layers } => times.saturating_mul(expanded(layers)),
        LayerSpec::Residual { layers, shortcut } => expanded(layers).saturating_add(expanded(shortcut)),
        LayerSpec::Recurrent(recurrent) => recurrent.layers,
        _ => 1,
    };
    layers.iter().map(of).fold(0, usize::saturating_add)
}

/// Checks that `times` as many layers are not beyond any use.
fn check_count(layers: &[LayerConfig], times: usize) -> Result<(), String> {
    match times.saturating_mul(expanded(layers)) {
        all if all > MOST_LAYERS => Err(format!("expected at most {MOST_LAYERS} layers in all, got {all}")),
        _ => Ok(()),
    }
}

impl Definition {
    /// An entry that is not one of its parameters.
    fn unknown<'a>(&self, values: &'a [Entry]) -> Option<&'a Entry> {
        values.iter().find(|value| !self.parameters.contains(&value.key))
    }

    fn no_parameter(&self, value: &Entry, giver: &str) -> Error {
        let known: Vec<_> = self.parameters.iter().map(|name| format!("${name}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("block '{}' has no parameter '${}', which {giver}; it has {known}", self.name, value.key);
        value.origin.error(message)
    }
}

/// The name that a string stands for: `width` of `$width`.
fn parameter(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => text.strip_prefix('$'),
        _ => None,
    }
}

/// Adds the parameters in `value`.
fn collect(value: &Value, parameters: &mut BTreeSet<String>) {
    parameters.extend(parameter(value).map(str::to_owned));
    match value {
        Value::List(items) => items.iter().for_each(|node| collect(&node.value, parameters)),
        Value::Table(entries) => entries.iter().for_each(|entry| collect(&entry.node.value, parameters)),
        _ => {}
    }
}

/// `node` with `values` in the places of the parameters, each of which has one; `count` counts what is written. `None`
/// when that is too much.
fn substituted(node: &Node, values: &HashMap<&str, &Node>, count: &mut usize) -> Option<Node> {
    if let Some(value) = parameter(&node.value).and_then(|name| values.get(name)) {
        return substituted(value, &HashMap::new(), count);
    }
    *count += 1 + if let Value::String(text) = &node.value { text.len() / 64 } else { 0 };
    if *count > MOST_VALUES {
        return None;
    }
    let value = match &node.value {
        Value::List(items) => {
            Value::List(items.iter().map(|item| substituted(item, values, count)).collect::<Option<_>>()?)
        }
        Value::Table(entries) => {
            let entry = |entry: &Entry| {
                let (key, origin) = (entry.key.clone(), entry.origin.clone());
                Some(Entry { key, origin, node: substituted(&entry.node, values, count)? })
            };
            Value::Table(entries.iter().map(entry).collect::<Option<_>>()?)
        }
        plain => plain.clone(),
    };
    Some(Node { value, origin: node.origin.clone() })
}
