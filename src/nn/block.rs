//! A list of named layers that run one after the other: the body of a network, and a layer itself.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::layers::{Initialized, Initializer, within};
use super::{Layer, Mode};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::ValueId;

/// Layers one after the other. As a layer of another network its layers' names stand behind its own
/// (`block_1.linear_2.weight`).
#[derive(Debug, Clone, Default)]
pub struct Block(Vec<Named>);

/// A layer, and its name where the user gave one.
#[derive(Debug, Clone)]
struct Named {
    name: Option<String>,
    layer: Arc<dyn Layer>,
}

impl Block {
    /// No layer yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with `layer` behind the others.
    pub fn layer(mut self, layer: impl Layer + 'static) -> Self {
        self.push(Arc::new(layer));
        self
    }

    /// The same with this name for the layer added last.
    pub fn named(mut self, name: &str) -> Self {
        self.name_last(name);
        self
    }

    /// The same with weights of the layer added last that start as `initializer` says, where it is one.
    pub(super) fn starting(mut self, initializer: Option<Initializer>) -> Self {
        if let Some(initializer) = initializer {
            self.initialize_last(initializer);
        }
        self
    }

    /// Adds a layer, which may stand in several blocks.
    pub fn push(&mut self, layer: Arc<dyn Layer>) {
        self.0.push(Named { name: None, layer });
    }

    /// Names the layer added last.
    pub(crate) fn name_last(&mut self, name: &str) {
        if let Some(last) = self.0.last_mut() {
            last.name = Some(name.to_owned());
        }
    }

    /// Lets the weights of the layer added last start as `initializer` says.
    pub(crate) fn initialize_last(&mut self, initializer: Initializer) {
        if let Some(last) = self.0.last_mut() {
            last.layer = Arc::new(Initialized { layer: last.layer.clone(), initializer });
        }
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no layer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The layers, in order.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = &dyn Layer> {
        self.0.iter().map(|named| named.layer.as_ref())
    }

    /// The place of the layer at `index` as messages name it, counted from 1: `layer 3 (conv2d)`,
    /// `layer 3 (conv2d 'stem')`.
    pub fn label(&self, index: usize) -> String {
        let Named { name, layer } = &self.0[index];
        let name = name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
        format!("layer {} ({}{name})", index + 1, layer.kind())
    }

    /// The layers' names: the user's, else the kind and the number among those of the kind.
    ///
    /// # Errors
    /// When a name is empty or stands twice.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut taken = HashSet::new();
        let mut names: Vec<String> = Vec::with_capacity(self.len());
        for (index, Named { name, layer }) in self.0.iter().enumerate() {
            let count = counts.entry(layer.kind()).or_default();
            *count += 1;
            let name = name.clone().unwrap_or_else(|| format!("{}_{count}", layer.kind()));
            if name.trim().is_empty() {
                return Err(Error::shape(self.label(index), "expected a name that is not empty"));
            }
            if !taken.insert(name.clone()) {
                let first = names.iter().position(|n| *n == name).expect("a taken name is in the list");
                let message = format!("the name '{name}' is taken by {}", self.label(first));
                return Err(Error::shape(self.label(index), message));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// The layer at `index` with the activation behind it in its kernel, where that is possible and serves `mode`: a
    /// derivative that needs the value in front of the activation would have it computed twice.
    fn fused(&self, index: usize, mode: Mode) -> Option<Arc<dyn Layer>> {
        let activation = self.0.get(index + 1)?.layer.as_activation()?;
        let recomputes = mode == Mode::Train && !activation.grad_from_output();
        if recomputes { None } else { self.0[index].layer.with_activation(activation) }
    }

    /// Appends the layers to `graph`; an error names the layer by [`Block::label`].
    pub(super) fn run(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let names = self.names()?;
        let (mut x, mut index) = (x, 0);
        while index < self.len() {
            let fused = self.fused(index, mode);
            let layer = fused.as_ref().unwrap_or(&self.0[index].layer);
            let result = graph.scoped(&names[index], |graph| layer.forward(graph, x, mode));
            x = result.map_err(|error| match error {
                Error::Shape { message, .. } => Error::Shape { what: self.label(index), message },
                other => other,
            })?;
            index += if fused.is_some() { 2 } else { 1 };
        }
        Ok(x)
    }
}

impl Layer for Block {
    fn kind(&self) -> &'static str {
        "block"
    }

    fn decodes(&self) -> bool {
        self.0.iter().all(|named| named.layer.decodes())
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        self.run(graph, x, mode).map_err(|error| within(self.kind(), "", error))
    }
}
