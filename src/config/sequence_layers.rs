//! Layers of a run file that transformers are made of, and norms.

use super::init;
use super::layers::LayerSpec;
use super::reader::{Read, Section, between, flag, not_negative, number, single, text, whole};
use super::train::{unless, write_unless};
use super::tree::{Value, quoted};
use crate::error::Result;
use crate::nn::layers::{
    BatchNorm, Embedding, GroupNorm, LayerNorm, MeanPositions, Positions, Recurrent, RmsNorm, SelfAttention, Sequence,
    TiedLinear,
};

/// Most layers of an LSTM or GRU: beyond any use.
const MOST_RECURRENT: u32 = 100;

/// What is added to a variance.
fn epsilon(value: &Value) -> Read<f32> {
    single(not_negative)(value)
}

/// How far a step moves running statistics.
fn momentum(value: &Value) -> Read<f32> {
    single(number(|v| (0.0..=1.0).contains(&v), "a number from 0 to 1"))(value)
}

/// The base of rotary wavelengths.
fn theta(value: &Value) -> Read<f32> {
    single(number(|v| v > 1.0 && v.is_finite(), "a finite number above 1"))(value)
}

/// The layer, if it is of a kind that this file knows.
pub(super) fn read(kind: &str, section: &mut Section) -> Result<Option<LayerSpec>> {
    Ok(Some(match kind {
        "embedding" => LayerSpec::Embedding(Embedding {
            vocabulary: section.required("vocabulary", "the number of tokens", whole(1))?,
            width: section.required("width", "the elements of a vector", whole(1))?,
        }),
        "lstm" | "gru" => {
            let hidden = section.required("hidden", "the number of hidden units", whole(1))?;
            let default = if kind == "lstm" { Recurrent::lstm(hidden) } else { Recurrent::gru(hidden) };
            LayerSpec::Recurrent(Recurrent {
                layers: section.get("layers", default.layers, between(1, MOST_RECURRENT))?,
                sequence: section.get("sequence", default.sequence, flag)?,
                ..default
            })
        }
        "sequence" => LayerSpec::Sequence(Sequence),
        "mean_positions" => LayerSpec::MeanPositions(MeanPositions),
        "positions" => LayerSpec::Positions(Positions),
        "self_attention" => {
            let default = SelfAttention::new(section.required("heads", "the number of heads", whole(1))?);
            LayerSpec::SelfAttention(SelfAttention {
                causal: section.get("causal", default.causal, flag)?,
                rotary: section.get("rotary", default.rotary, unless("none", theta))?,
                bias: section.get("bias", default.bias, flag)?,
                out_init: init::read_key("out_init", section)?,
                ..default
            })
        }
        "tied_linear" => {
            LayerSpec::TiedLinear(TiedLinear { to: section.required("to", "the name of the embedding", text)? })
        }
        "layer_norm" => {
            let default = LayerNorm::default();
            LayerSpec::LayerNorm(LayerNorm {
                epsilon: section.get("epsilon", default.epsilon, epsilon)?,
                bias: section.get("bias", default.bias, flag)?,
            })
        }
        "rms_norm" => {
            LayerSpec::RmsNorm(RmsNorm { epsilon: section.get("epsilon", RmsNorm::default().epsilon, epsilon)? })
        }
        "group_norm" => {
            let default = GroupNorm::new(section.required("groups", "the number of groups", whole(1))?);
            LayerSpec::GroupNorm(GroupNorm { epsilon: section.get("epsilon", default.epsilon, epsilon)?, ..default })
        }
        "batch_norm" => {
            let default = BatchNorm::default();
            LayerSpec::BatchNorm(BatchNorm {
                momentum: section.get("momentum", default.momentum, momentum)?,
                epsilon: section.get("epsilon", default.epsilon, epsilon)?,
                affine: section.get("affine", default.affine, flag)?,
                group: section.get("group", default.group, whole(1))?,
            })
        }
        _ => return Ok(None),
    }))
}

/// The keys of such a layer and their values as TOML.
pub(super) fn write(layer: &LayerSpec) -> Vec<(&'static str, String)> {
    match layer {
        LayerSpec::Embedding(l) => vec![("vocabulary", l.vocabulary.to_string()), ("width", l.width.to_string())],
        LayerSpec::SelfAttention(l) => {
            let mut entries = vec![
                ("heads", l.heads.to_string()),
                ("causal", l.causal.to_string()),
                ("rotary", write_unless("none", &l.rotary)),
                ("bias", l.bias.to_string()),
            ];
            entries.extend(l.out_init.iter().map(|initializer| ("out_init", init::write(initializer))));
            entries
        }
        LayerSpec::Recurrent(l) => vec![
            ("hidden", l.hidden.to_string()),
            ("layers", l.layers.to_string()),
            ("sequence", l.sequence.to_string()),
        ],
        LayerSpec::TiedLinear(l) => vec![("to", quoted(&l.to))],
        LayerSpec::LayerNorm(l) => vec![("epsilon", format!("{:?}", l.epsilon)), ("bias", l.bias.to_string())],
        LayerSpec::RmsNorm(l) => vec![("epsilon", format!("{:?}", l.epsilon))],
        LayerSpec::GroupNorm(l) => vec![("groups", l.groups.to_string()), ("epsilon", format!("{:?}", l.epsilon))],
        LayerSpec::BatchNorm(l) => vec![
            ("momentum", format!("{:?}", l.momentum)),
            ("epsilon", format!("{:?}", l.epsilon)),
            ("affine", l.affine.to_string()),
            ("group", l.group.to_string()),
        ],
        _ => Vec::new(),
    }
}
