//! Layers in a run file: each kind's keys, read, written and built.

use std::sync::Arc;

use super::blocks::{self, Blocks};
use super::image_layers;
use super::init;
use super::reader::{Read, Section, below_one, finite, flag, nearest, shape, single, text, whole};
use super::sequence_layers;
use super::tree::{Node, Value, quoted};
use crate::error::Result;
use crate::nn::Layer;
use crate::nn::layers::Initializer;
use crate::nn::layers::{
    Activation, AdaptiveAvgPool2d, AvgPool2d, BatchNorm, Conv1d, Conv2d, ConvTranspose2d, Dropout, Embedding, Flatten,
    GlobalAvgPool, GlobalMaxPool, GroupNorm, LayerNorm, Linear, MaxPool2d, MeanPositions, Positions, Recurrent, Repeat,
    Reshape, Residual, RmsNorm, SelfAttention, Sequence, Softmax, TiedLinear, Upsample,
};

/// A layer of a run file.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    /// The user's name for it.
    pub name: Option<String>,
    /// How its weights start, where the layer is not to decide.
    pub init: Option<Initializer>,
    /// What it is.
    pub layer: LayerSpec,
}

/// What a layer of a run file is.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant holds the layer it is named after")]
pub enum LayerSpec {
    Linear(Linear),
    Conv2d(Conv2d),
    Conv1d(Conv1d),
    ConvTranspose2d(ConvTranspose2d),
    MaxPool2d(MaxPool2d),
    AvgPool2d(AvgPool2d),
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    GlobalAvgPool(GlobalAvgPool),
    GlobalMaxPool(GlobalMaxPool),
    Upsample(Upsample),
    Flatten(Flatten),
    Reshape(Reshape),
    Activation(Activation),
    Dropout(Dropout),
    Softmax(Softmax),
    Embedding(Embedding),
    Positions(Positions),
    SelfAttention(SelfAttention),
    LayerNorm(LayerNorm),
    RmsNorm(RmsNorm),
    GroupNorm(GroupNorm),
    BatchNorm(BatchNorm),
    TiedLinear(TiedLinear),
    Recurrent(Recurrent),
    Sequence(Sequence),
    MeanPositions(MeanPositions),
    Block { layers: Vec<LayerConfig> },
    Repeat { times: usize, layers: Vec<LayerConfig> },
    Residual { layers: Vec<LayerConfig>, shortcut: Vec<LayerConfig> },
}

/// Every kind there is.
const KINDS: [&str; 39] = [
    "linear",
    "conv2d",
    "conv1d",
    "conv_transpose2d",
    "max_pool2d",
    "avg_pool2d",
    "adaptive_avg_pool2d",
    "global_avg_pool",
    "global_max_pool",
    "upsample",
    "flatten",
    "reshape",
    "relu",
    "gelu",
    "tanh",
    "sigmoid",
    "leaky_relu",
    "elu",
    "gelu_tanh",
    "silu",
    "mish",
    "softplus",
    "dropout",
    "softmax",
    "embedding",
    "positions",
    "self_attention",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "batch_norm",
    "tied_linear",
    "lstm",
    "gru",
    "sequence",
    "mean_positions",
    "block",
    "repeat",
    "residual",
];

impl LayerConfig {
    /// Reads the layer that messages call `path`: a table with a kind, or only the kind as a string.
    pub(super) fn read(path: &str, node: Node, blocks: &mut Blocks) -> Result<Self> {
        let node = match node.value {
            Value::String(kind) => return Self::read_kind(Section::empty(path, node.origin), &kind, blocks),
            _ => node,
        };
        let mut section = Section::new(path, node)?;
        let kind = section.required("kind", &format!("one of {}", KINDS.join(", ")), kind)?;
        Self::read_kind(section, &kind, blocks)
    }

    fn read_kind(mut section: Section, kind: &str, blocks: &mut Blocks) -> Result<Self> {
        let layer = match blocks::read(kind, &mut section, blocks)? {
            Some(layer) => layer,
            None => LayerSpec::read(kind, &mut section)?,
        };
        let name = section.optional("name", text)?;
        let init = init::read(&layer, &mut section)?;
        section.finish()?;
        Ok(Self { name, init, layer })
    }

    /// The layer as an inline table with all its keys.
    pub(super) fn write(&self) -> String {
        let mut entries = vec![("kind", quoted(self.layer.build().kind()))];
        entries.extend(self.name.iter().map(|name| ("name", quoted(name))));
        entries.extend(self.layer.write());
        entries.extend(self.init.iter().map(|initializer| ("init", init::write(initializer))));
        let entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{{ {} }}", entries.join(", "))
    }
}

/// A layer kind.
fn kind(value: &Value) -> Read<String> {
    match value {
        Value::String(v) if KINDS.contains(&v.as_str()) => Ok(v.clone()),
        Value::String(v) => Err(match nearest(v, KINDS.into_iter()) {
            Some(near) => format!("a layer kind (did you mean {}?)", quoted(near)),
            None => format!("a layer kind ({})", KINDS.join(", ")),
        }),
        _ => Err(format!("a layer kind ({})", KINDS.join(", "))),
    }
}

/// The activation `default` with the parameter that the section gives it.
fn activation(default: Activation, section: &mut Section) -> Result<Activation> {
    Ok(match default {
        Activation::LeakyRelu(slope) => {
            Activation::LeakyRelu(section.get("slope", slope.get(), single(finite))?.into())
        }
        Activation::Elu(alpha) => Activation::Elu(section.get("alpha", alpha.get(), single(finite))?.into()),
        other => other,
    })
}

impl LayerSpec {
    fn read(name: &str, section: &mut Section) -> Result<Self> {
        if let Some(layer) = image_layers::read(name, section)? {
            return Ok(layer);
        }
        if let Some(layer) = sequence_layers::read(name, section)? {
            return Ok(layer);
        }
        let known = Activation::ALL.into_iter().find(|a| Layer::kind(a) == name);
        Ok(match name {
            "linear" => Self::Linear(Linear {
                bias: section.get("bias", true, flag)?,
                ..Linear::new(section.required("out", "the number of outputs", whole(1))?)
            }),
            "flatten" => Self::Flatten(Flatten),
            "reshape" => {
                let shape = section.required("shape", "a sample's dimensions", shape)?;
                Self::Reshape(Reshape(shape.into()))
            }
            "dropout" => {
                let purpose = "the probability that an element is dropped";
                let probability = section.required("probability", purpose, single(below_one))?;
                Self::Dropout(Dropout { probability })
            }
            "softmax" => Self::Softmax(Softmax),
            "global_avg_pool" => Self::GlobalAvgPool(GlobalAvgPool),
            "global_max_pool" => Self::GlobalMaxPool(GlobalMaxPool),
            _ => match known {
                Some(default) => Self::Activation(activation(default, section)?),
                None => {
                    let expected = kind(&Value::String(name.to_owned())).err().unwrap_or_default();
                    return Err(section.error(format!(
                        "{}: expected {expected}, got {}",
                        section.name(),
                        quoted(name)
                    )));
                }
            },
        })
    }

    /// Its keys and their values as TOML.
    fn write(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Linear(l) => vec![("out", l.out.to_string()), ("bias", l.bias.to_string())],
            Self::Reshape(l) => vec![("shape", format!("{:?}", l.0.dims()))],
            Self::Dropout(l) => vec![("probability", format!("{:?}", l.probability))],
            Self::Activation(Activation::LeakyRelu(slope)) => vec![("slope", format!("{slope:?}"))],
            Self::Activation(Activation::Elu(alpha)) => vec![("alpha", format!("{alpha:?}"))],
            Self::Flatten(_) | Self::Activation(_) | Self::Softmax(_) => Vec::new(),
            other => [image_layers::write(other), sequence_layers::write(other), blocks::write(other)].concat(),
        }
    }

    /// The network's layer.
    pub fn build(&self) -> Arc<dyn Layer> {
        match self.clone() {
            Self::Linear(l) => Arc::new(l),
            Self::Conv2d(l) => Arc::new(l),
            Self::Conv1d(l) => Arc::new(l),
            Self::ConvTranspose2d(l) => Arc::new(l),
            Self::MaxPool2d(l) => Arc::new(l),
            Self::AvgPool2d(l) => Arc::new(l),
            Self::AdaptiveAvgPool2d(l) => Arc::new(l),
            Self::GlobalAvgPool(l) => Arc::new(l),
            Self::GlobalMaxPool(l) => Arc::new(l),
            Self::Upsample(l) => Arc::new(l),
            Self::Flatten(l) => Arc::new(l),
            Self::Reshape(l) => Arc::new(l),
            Self::Activation(l) => Arc::new(l),
            Self::Dropout(l) => Arc::new(l),
            Self::Softmax(l) => Arc::new(l),
            Self::Embedding(l) => Arc::new(l),
            Self::Positions(l) => Arc::new(l),
            Self::SelfAttention(l) => Arc::new(l),
            Self::LayerNorm(l) => Arc::new(l),
            Self::RmsNorm(l) => Arc::new(l),
            Self::GroupNorm(l) => Arc::new(l),
            Self::BatchNorm(l) => Arc::new(l),
            Self::TiedLinear(l) => Arc::new(l),
            Self::Recurrent(l) => Arc::new(l),
            Self::Sequence(l) => Arc::new(l),
            Self::MeanPositions(l) => Arc::new(l),
            Self::Block { layers } => Arc::new(blocks::build(&layers)),
            Self::Repeat { times, layers } => Arc::new(Repeat { times, body: blocks::build(&layers) }),
            Self::Residual { layers, shortcut } => {
                Arc::new(Residual { body: blocks::build(&layers), shortcut: blocks::build(&shortcut) })
            }
        }
    }
}
