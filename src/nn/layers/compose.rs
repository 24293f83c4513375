//! Layers made of layers: residual branches and repeats.

use super::Layer;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::nn::{Block, Mode};
use crate::op::{Add, ValueId};
use crate::tensor::Shape;

/// x → body(x) + shortcut(x) (He et al., "Deep Residual Learning for Image Recognition", 2016); a shortcut without
/// layers is the identity. The body's layers are named as those of a [`Block`], the shortcut's with `shortcut.` in
/// front.
#[derive(Debug, Clone, Default)]
pub struct Residual {
    /// The main path.
    pub body: Block,
    /// The path beside it.
    pub shortcut: Block,
}

impl Residual {
    /// `body` beside the identity.
    pub fn new(body: Block) -> Self {
        Self { body, shortcut: Block::default() }
    }

    /// The same with `shortcut` in place of the identity.
    pub fn shortcut(self, shortcut: Block) -> Self {
        Self { shortcut, ..self }
    }
}

impl Layer for Residual {
    fn kind(&self) -> &'static str {
        "residual"
    }

    fn decodes(&self) -> bool {
        self.body.decodes() && self.shortcut.decodes()
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        let body = self.body.run(graph, x, mode).map_err(|error| within(self.kind(), "", error))?;
        let shortcut = graph
            .scoped("shortcut", |graph| self.shortcut.run(graph, x, mode))
            .map_err(|error| within(self.kind(), "shortcut, ", error))?;
        let sample = |value| Shape::from(&graph.shape(value).dims()[1..]);
        let (main, beside) = (sample(body), sample(shortcut));
        if main != beside {
            let advice = match self.shortcut.is_empty() {
                true => "; give it a shortcut whose layers make that of it",
                false => "",
            };
            let message = format!("the layers give {main}, but the shortcut gives {beside}{advice}");
            return Err(Error::shape(self.kind(), message));
        }
        graph.apply(Add, &[body, shortcut])
    }
}

/// The same layers several times in a row, each time with parameters of their own: those of round n, from 1, have `n.`
/// in front of their names (`repeat_1.2.linear_1.weight`).
#[derive(Debug, Clone)]
pub struct Repeat {
    /// How often.
    pub times: usize,
    /// The layers.
    pub body: Block,
}

impl Layer for Repeat {
    fn kind(&self) -> &'static str {
        "repeat"
    }

    fn decodes(&self) -> bool {
        self.body.decodes()
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, mode: Mode) -> Result<ValueId> {
        (1..=self.times).try_fold(x, |x, round| {
            let result = graph.scoped(&round.to_string(), |graph| self.body.run(graph, x, mode));
            result.map_err(|error| within(self.kind(), &format!("round {round}, "), error))
        })
    }
}

/// An error of a layer inside as one of the `kind` around it: the network outside puts its own label in front.
pub(in crate::nn) fn within(kind: &str, place: &str, error: Error) -> Error {
    match error {
        Error::Shape { what, message } => Error::shape(kind, format!("{place}{what}: {message}")),
        other => other,
    }
}
