//! `[model]`: the network and what it is trained for.

use super::blocks::Blocks;
use super::fields::Fields;
use super::layers::{self, LayerConfig, LayerSpec};
use super::loss;
use super::sizes::shape;
use super::values::{Allowed, rows};
use crate::error::{Error, Result};
use crate::nn::layers::Activation;
use crate::nn::{self, Loss, Sequential};
use crate::tensor::{Shape, TensorType};

/// Most elements of a sample: beyond what a device can bind.
const MOST_ELEMENTS: usize = u32::MAX as usize;

/// `[model]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// A sample's shape; the data's where it is not given.
    pub input: Option<Vec<usize>>,
    /// The layers, in order.
    pub layers: Vec<LayerConfig>,
    /// What is minimised.
    pub loss: Loss,
}

/// What a loss does to a network's values itself: its name, and the layers that do the same.
type Applied = (&'static str, fn(&LayerSpec) -> bool);

fn applied(loss: &Loss) -> Option<Applied> {
    match loss {
        Loss::CrossEntropy(_) | Loss::KlDivergence => Some(("softmax", |layer| matches!(layer, LayerSpec::Softmax(_)))),
        Loss::BinaryCrossEntropy { .. } => {
            Some(("sigmoid", |layer| matches!(layer, LayerSpec::Activation(Activation::Sigmoid))))
        }
        _ => None,
    }
}

/// What the values that layers give come from.
enum End {
    /// Such a layer, by its way there.
    At(Vec<String>),
    /// Another one.
    Elsewhere,
    /// What goes into the layers: they change no value.
    Input,
}

/// Whether the values that `layers` give come from one that is `wanted`, also inside of layers made of layers.
fn end(layers: &[LayerConfig], wanted: fn(&LayerSpec) -> bool) -> End {
    for (index, layer) in layers.iter().enumerate().rev() {
        let inner = match &layer.layer {
            LayerSpec::Flatten(_) | LayerSpec::Reshape(_) | LayerSpec::Dropout(_) => End::Input,
            LayerSpec::Block { layers } | LayerSpec::Repeat { layers, .. } => end(layers, wanted),
            LayerSpec::Residual { layers, shortcut } => match (end(layers, wanted), end(shortcut, wanted)) {
                (End::At(path), _) | (_, End::At(path)) => End::At(path),
                _ => End::Elsewhere,
            },
            layer if wanted(layer) => End::At(Vec::new()),
            _ => End::Elsewhere,
        };
        match inner {
            End::At(path) => {
                let label = layers::build(layers).label(index);
                return End::At(std::iter::once(label).chain(path).collect());
            }
            End::Elsewhere => return End::Elsewhere,
            End::Input => {}
        }
    }
    End::Input
}

impl ModelConfig {
    /// The section's fields; `regression` data is trained with the mean squared error.
    pub(super) fn fields(&mut self, regression: bool, f: &mut Fields<'_>) {
        f.optional("input", "A sample's shape; else the data's", shape(), &mut self.input);
        let default = if regression { Loss::MeanSquaredError } else { Loss::cross_entropy() };
        let default = ("\"cross-entropy\", for regression \"mse\"", default);
        f.derived("loss", "What is minimised", loss::form(), default, &mut self.loss);
        f.shown("blocks", "Layers with a name", "a table", None, None);
        f.reading(|section| {
            let mut blocks = Blocks::read(section.section("blocks")?)?;
            let layers = section.take("layers").map(|node| blocks.network("model.layers", node)).transpose()?;
            self.layers = layers.unwrap_or_default();
            if self.layers.is_empty() {
                return Err(section.error("model.layers: expected at least one layer, got none"));
            }
            blocks.finish()
        });
        let written = rows(self.layers.iter().map(LayerConfig::write));
        f.shown(
            "layers",
            "The layers, in order",
            Allowed::Tables("a list of layers", layers::keys),
            Some(written),
            None,
        );
    }

    /// The network for samples of type `input`, whose last layer must give a logit for each of `classes`, for each
    /// class index of `target`.
    ///
    /// # Errors
    /// When the samples or classes are not those that the network is for, or a layer cannot work; the message names it.
    pub fn build(&self, input: &TensorType, target: &TensorType, classes: Option<usize>) -> Result<Sequential> {
        if let Some(expected) = &self.input
            && input.shape.dims() != expected
        {
            let message = format!("expected samples of shape {expected:?}, the data's are {}", input.shape);
            return Err(Error::invalid("model.input", message));
        }
        if input.shape.elements() > MOST_ELEMENTS {
            return Err(Error::shape(
                "model",
                format!("expected samples of at most {MOST_ELEMENTS} elements, got {input}"),
            ));
        }
        let model = Sequential::of(input.clone(), layers::build(&self.layers));
        let output = nn::output_shape(&model)?;
        let last = self.layers.len() - 1;
        let over_classes = matches!(self.loss, Loss::CrossEntropy(_));
        if let Some((applied, is_it)) = applied(&self.loss)
            && let End::At(path) = end(&self.layers, is_it)
        {
            let (name, path) = (self.loss.name(), path.join(": "));
            let message = format!("the {name} loss takes logits and applies {applied} itself; leave this layer out");
            // Errors of layers inside are told in the same way.
            let (outer, message) = match path.split_once(": ") {
                Some((outer, inner)) => (outer.to_owned(), format!("{inner}: {message}")),
                None => (path, message),
            };
            return Err(Error::shape(outer, message));
        }
        match classes {
            Some(classes) if over_classes => {
                let expected = Shape::from([target.shape.dims(), &[classes]].concat());
                if output == expected {
                    return Ok(model);
                }
                let what = if target.shape.rank() == 0 { "class" } else { "token" };
                let message =
                    format!("expected {expected} as its output, one logit a {what} of the data, got {output}");
                Err(Error::shape(model.block().label(last), message))
            }
            _ => Ok(model),
        }
    }
}
