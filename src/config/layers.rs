//! Layers in a run file: each kind's keys, read, written and built.

use std::sync::Arc;

use super::reader::{Read, Section, any_of, below_one, flag, list, nearest, not_negative, number, text, whole};
use super::train::{unless, write_unless};
use super::tree::{Node, Value, quoted};
use crate::error::Result;
use crate::nn::Layer;
use crate::nn::layers::{
    Activation, AvgPool2d, Conv2d, Dropout, Embedding, Flatten, GroupNorm, LayerNorm, Linear, MaxPool2d, Padding,
    Positions, Reshape, RmsNorm, SelfAttention, Softmax,
};

/// A layer of a run file.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    /// The user's name for it.
    pub name: Option<String>,
    /// What it is.
    pub layer: LayerSpec,
}

/// What a layer of a run file is.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum LayerSpec {
    Linear(Linear),
    Conv2d(Conv2d),
    MaxPool2d(MaxPool2d),
    AvgPool2d(AvgPool2d),
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
}

/// Every kind there is.
const KINDS: [&str; 18] = [
    "linear",
    "conv2d",
    "max_pool2d",
    "avg_pool2d",
    "flatten",
    "reshape",
    "relu",
    "gelu",
    "tanh",
    "sigmoid",
    "dropout",
    "softmax",
    "embedding",
    "positions",
    "self_attention",
    "layer_norm",
    "rms_norm",
    "group_norm",
];

impl LayerConfig {
    /// Reads layer `number` (from 1): a table with a kind, or only the kind as a string.
    pub(super) fn read(number: usize, node: Node) -> Result<Self> {
        let path = format!("model.layers[{number}]");
        let node = match node.value {
            Value::String(kind) => return Self::read_kind(Section::empty(&path, node.origin), &kind),
            _ => node,
        };
        let mut section = Section::new(&path, node)?;
        let kind = section.required("kind", &format!("one of {}", KINDS.join(", ")), kind)?;
        Self::read_kind(section, &kind)
    }

    fn read_kind(mut section: Section, kind: &str) -> Result<Self> {
        let layer = LayerSpec::read(kind, &mut section)?;
        let name = section.optional("name", text)?;
        section.finish()?;
        Ok(Self { name, layer })
    }

    /// The layer as an inline table with all its keys.
    pub(super) fn write(&self) -> String {
        let mut entries = vec![("kind", quoted(self.layer.build().kind()))];
        entries.extend(self.name.iter().map(|name| ("name", quoted(name))));
        entries.extend(self.layer.write());
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

/// What is added to a variance.
fn epsilon(value: &Value) -> Read<f32> {
    not_negative(value).map(|epsilon| epsilon as f32)
}

fn theta(value: &Value) -> Read<f32> {
    number(|v| v > 1.0 && v.is_finite(), "a finite number above 1")(value).map(|theta| theta as f32)
}

/// A number for both directions, or \[vertical, horizontal\].
fn pair(least: u32) -> impl Fn(&Value) -> Read<[usize; 2]> {
    move |value| {
        let both = whole(least)(value).map(|v| [v; 2]);
        let each = || list(whole(least))(value).ok()?.try_into().ok();
        both.or_else(|_| each().ok_or_else(|| format!("a whole number of at least {least}, or [vertical, horizontal]")))
    }
}

/// `"same"`, a number, \[vertical, horizontal\] or \[top, bottom, left, right\].
fn padding(value: &Value) -> Read<Padding> {
    if matches!(value, Value::String(v) if v == "same") {
        return Ok(Padding::Same);
    }
    let sides = || list(whole(0))(value).ok()?.try_into().ok().map(Padding::Sides);
    pair(0)(value).map(Padding::from).or_else(|_| {
        sides().ok_or_else(|| {
            let names = ["\"same\"", "a whole number", "[vertical, horizontal]", "[top, bottom, left, right]"];
            any_of(&names.map(str::to_owned))
        })
    })
}

fn write_padding(padding: Padding) -> String {
    match padding {
        Padding::Same => quoted("same"),
        Padding::Sides(sides) => format!("{sides:?}"),
    }
}

impl LayerSpec {
    fn read(name: &str, section: &mut Section) -> Result<Self> {
        let activation = Activation::ALL.into_iter().find(|a| Layer::kind(a) == name);
        Ok(match name {
            "linear" => Self::Linear(Linear {
                bias: section.get("bias", true, flag)?,
                ..Linear::new(section.required("out", "the number of outputs", whole(1))?)
            }),
            "conv2d" => {
                let default = Conv2d::new(section.required("out", "the number of output channels", whole(1))?, 1);
                Self::Conv2d(Conv2d {
                    kernel: section.required("kernel", "the window's extents", pair(1))?,
                    stride: section.get("stride", default.stride, pair(1))?,
                    padding: section.get("padding", default.padding, padding)?,
                    dilation: section.get("dilation", default.dilation, pair(1))?,
                    groups: section.get("groups", 1, whole(1))?,
                    bias: section.get("bias", true, flag)?,
                    ..default
                })
            }
            "max_pool2d" => {
                let kernel = section.required("kernel", "the window's extents", pair(1))?;
                Self::MaxPool2d(MaxPool2d {
                    kernel,
                    stride: section.get("stride", kernel, pair(1))?,
                    padding: section.get("padding", Padding::default(), padding)?,
                })
            }
            "avg_pool2d" => {
                let kernel = section.required("kernel", "the window's extents", pair(1))?;
                Self::AvgPool2d(AvgPool2d {
                    kernel,
                    stride: section.get("stride", kernel, pair(1))?,
                    padding: section.get("padding", Padding::default(), padding)?,
                    count_include_pad: section.get("count_include_pad", true, flag)?,
                })
            }
            "flatten" => Self::Flatten(Flatten),
            "reshape" => {
                let shape = section.required("shape", "a sample's dimensions", list(whole::<usize>(1)))?;
                Self::Reshape(Reshape(shape.into()))
            }
            "dropout" => {
                let purpose = "the probability that an element is dropped";
                let probability = section.required("probability", purpose, below_one)? as f32;
                Self::Dropout(Dropout { probability })
            }
            "softmax" => Self::Softmax(Softmax),
            "embedding" => Self::Embedding(Embedding {
                vocabulary: section.required("vocabulary", "the number of tokens", whole(1))?,
                width: section.required("width", "the elements of a vector", whole(1))?,
            }),
            "positions" => Self::Positions(Positions),
            "self_attention" => {
                let default = SelfAttention::new(section.required("heads", "the number of heads", whole(1))?);
                Self::SelfAttention(SelfAttention {
                    causal: section.get("causal", default.causal, flag)?,
                    rotary: section.get("rotary", default.rotary, unless("none", theta))?,
                    bias: section.get("bias", default.bias, flag)?,
                    ..default
                })
            }
            "layer_norm" => {
                let default = LayerNorm::default();
                Self::LayerNorm(LayerNorm {
                    epsilon: section.get("epsilon", default.epsilon, epsilon)?,
                    bias: section.get("bias", default.bias, flag)?,
                })
            }
            "rms_norm" => {
                Self::RmsNorm(RmsNorm { epsilon: section.get("epsilon", RmsNorm::default().epsilon, epsilon)? })
            }
            "group_norm" => {
                let default = GroupNorm::new(section.required("groups", "the number of groups", whole(1))?);
                Self::GroupNorm(GroupNorm { epsilon: section.get("epsilon", default.epsilon, epsilon)?, ..default })
            }
            _ => match activation {
                Some(activation) => Self::Activation(activation),
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
            Self::Conv2d(l) => vec![
                ("out", l.out.to_string()),
                ("kernel", format!("{:?}", l.kernel)),
                ("stride", format!("{:?}", l.stride)),
                ("padding", write_padding(l.padding)),
                ("dilation", format!("{:?}", l.dilation)),
                ("groups", l.groups.to_string()),
                ("bias", l.bias.to_string()),
            ],
            Self::MaxPool2d(l) => vec![
                ("kernel", format!("{:?}", l.kernel)),
                ("stride", format!("{:?}", l.stride)),
                ("padding", write_padding(l.padding)),
            ],
            Self::AvgPool2d(l) => vec![
                ("kernel", format!("{:?}", l.kernel)),
                ("stride", format!("{:?}", l.stride)),
                ("padding", write_padding(l.padding)),
                ("count_include_pad", l.count_include_pad.to_string()),
            ],
            Self::Reshape(l) => vec![("shape", format!("{:?}", l.0.dims()))],
            Self::Dropout(l) => vec![("probability", format!("{:?}", l.probability))],
            Self::Embedding(l) => vec![("vocabulary", l.vocabulary.to_string()), ("width", l.width.to_string())],
            Self::SelfAttention(l) => vec![
                ("heads", l.heads.to_string()),
                ("causal", l.causal.to_string()),
                ("rotary", write_unless("none", &l.rotary)),
                ("bias", l.bias.to_string()),
            ],
            Self::LayerNorm(l) => vec![("epsilon", format!("{:?}", l.epsilon)), ("bias", l.bias.to_string())],
            Self::RmsNorm(l) => vec![("epsilon", format!("{:?}", l.epsilon))],
            Self::GroupNorm(l) => {
                vec![("groups", l.groups.to_string()), ("epsilon", format!("{:?}", l.epsilon))]
            }
            Self::Flatten(_) | Self::Activation(_) | Self::Softmax(_) | Self::Positions(_) => Vec::new(),
        }
    }

    /// The network's layer.
    pub fn build(&self) -> Arc<dyn Layer> {
        match self.clone() {
            Self::Linear(l) => Arc::new(l),
            Self::Conv2d(l) => Arc::new(l),
            Self::MaxPool2d(l) => Arc::new(l),
            Self::AvgPool2d(l) => Arc::new(l),
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
        }
    }
}
