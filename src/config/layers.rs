//! Layers in a run file: each kind's fields, and the layer that they describe.

use std::sync::Arc;

use super::fields::{self, Fields, Settings};
use super::init;
use super::reader::Wrong;
use super::sizes::shape;
use super::tree::{Node, Value, quoted};
use super::values::{Form, Key, flag, single, text, whole};
use crate::error::meant;
use crate::nn::layers::{
    Activation, AdaptiveAvgPool2d, AvgPool2d, BatchNorm, Conv1d, Conv2d, ConvTranspose2d, Dropout, Embedding, Flatten,
    GlobalAvgPool, GlobalMaxPool, GroupNorm, Initializer, Interpolation, LayerNorm, Linear, MaxPool2d, MeanPositions,
    Positions, Recurrent, Repeat, Reshape, Residual, Resolution, RmsNorm, SelfAttention, Sequence, Softmax, TiedLinear,
    Upsample,
};
use crate::nn::{Block, Layer};
use crate::tensor::Shape;

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

/// Makes of a table of layers what is alike for all of them, and adds those that are made of others. A row has the
/// layer, whether its weights may start otherwise, and one of each kind with its defaults.
macro_rules! layers {
    ($($layer:ident, $init:literal, $all:expr;)*) => {
        /// What a layer of a run file is.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant holds the layer it is named after")]
        pub enum LayerSpec {
            $($layer($layer),)*
            Block { layers: Vec<LayerConfig> },
            Repeat { times: usize, layers: Vec<LayerConfig> },
            Residual { layers: Vec<LayerConfig>, shortcut: Vec<LayerConfig> },
        }

        impl LayerSpec {
            /// The network's layer.
            pub fn build(&self) -> Arc<dyn Layer> {
                match self.clone() {
                    $(Self::$layer(layer) => Arc::new(layer),)*
                    Self::Block { layers } => Arc::new(build(&layers)),
                    Self::Repeat { times, layers } => Arc::new(Repeat { times, body: build(&layers) }),
                    Self::Residual { layers, shortcut } => {
                        Arc::new(Residual { body: build(&layers), shortcut: build(&shortcut) })
                    }
                }
            }

            /// Whether its weights may start otherwise.
            fn may_have_init(&self) -> bool {
                match self {
                    $(Self::$layer(_) => $init,)*
                    _ => false,
                }
            }

            /// One of every kind with its defaults.
            fn all() -> Vec<(&'static str, Self)> {
                let layers: Vec<Vec<Self>> = vec![
                    $($all.into_iter().map(Self::$layer).collect(),)*
                    vec![
                        Self::Block { layers: Vec::new() },
                        Self::Repeat { times: 1, layers: Vec::new() },
                        Self::Residual { layers: Vec::new(), shortcut: Vec::new() },
                    ],
                ];
                layers.into_iter().flatten().map(|layer| (layer.kind(), layer)).collect()
            }
        }

        impl Settings for LayerSpec {
            fn fields(&mut self, f: &mut Fields<'_>) {
                match self {
                    $(Self::$layer(layer) => layer.fields(f),)*
                    Self::Block { layers } => body(f, layers),
                    Self::Repeat { times, layers } => {
                        f.required("times", "how often", whole(1..), times);
                        body(f, layers);
                    }
                    Self::Residual { layers, shortcut } => {
                        body(f, layers);
                        inner(f, "shortcut", "Layers whose result is added; none: the input is", shortcut, Some("[]"));
                    }
                }
            }
        }
    };
}

layers! {
    Linear, true, [Linear::new(1)];
    Conv2d, true, [Conv2d::new(1, 1)];
    Conv1d, true, [Conv1d::new(1, 1)];
    ConvTranspose2d, true, [ConvTranspose2d::new(1, 1)];
    MaxPool2d, false, [MaxPool2d::new(1)];
    AvgPool2d, false, [AvgPool2d::new(1)];
    AdaptiveAvgPool2d, false, [AdaptiveAvgPool2d { size: [1; 2] }];
    GlobalAvgPool, false, [GlobalAvgPool];
    GlobalMaxPool, false, [GlobalMaxPool];
    Upsample, false, [Upsample { to: Resolution::Scale([2; 2]), interpolation: Interpolation::Nearest }];
    Flatten, false, [Flatten];
    Reshape, false, [Reshape([1].into())];
    Activation, false, Activation::ALL;
    Dropout, false, [Dropout { probability: 0.0 }];
    Softmax, false, [Softmax];
    Embedding, true, [Embedding { vocabulary: 1, width: 1 }];
    Positions, true, [Positions];
    SelfAttention, true, [SelfAttention::new(1)];
    LayerNorm, false, [LayerNorm::default()];
    RmsNorm, false, [RmsNorm::default()];
    GroupNorm, false, [GroupNorm::new(1)];
    BatchNorm, false, [BatchNorm::default()];
    TiedLinear, false, [TiedLinear::new("")];
    Recurrent, true, [Recurrent::lstm(1), Recurrent::gru(1)];
    Sequence, false, [Sequence];
    MeanPositions, false, [MeanPositions];
}

impl LayerSpec {
    fn kind(&self) -> &'static str {
        self.build().kind()
    }
}

/// Every kind there is, in a row.
pub(super) fn kinds() -> String {
    LayerSpec::all().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// The name of a layer's kind.
pub(super) fn kind() -> Form<LayerSpec> {
    let read = |_: &str, node: &Node| {
        let all = LayerSpec::all();
        let near = match &node.value {
            Value::String(word) => match all.iter().find(|(name, _)| name == word) {
                Some((_, layer)) => return Ok(layer.clone()),
                None => meant(word, all.iter().map(|(name, _)| *name)),
            },
            _ => None,
        };
        let near = near.map_or_else(kinds, |near| format!("did you mean {}?", quoted(near)));
        Err(Wrong::Expected(format!("a layer kind ({near})")))
    };
    Form::new("a layer kind", read, |layer: &LayerSpec| quoted(layer.kind()))
}

impl LayerConfig {
    /// The fields that the layer has for its kind.
    fn settings(&mut self, f: &mut Fields<'_>) {
        self.layer.fields(f);
        if self.layer.may_have_init() {
            f.optional("init", "How its weights start", init::form(), &mut self.init);
        }
    }

    /// The layer as an inline table with all its keys.
    pub(super) fn write(&self) -> String {
        let mut layer = self.clone();
        fields::inline(|f| {
            f.field("kind", "", kind(), &mut layer.layer.clone());
            layer.fields(f);
        })
    }
}

impl Settings for LayerConfig {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.optional("name", "What its parameters' names begin with", text(), &mut self.name);
        self.settings(f);
    }
}

/// The keys of layers, in a table that is called `table`.
pub(super) fn keys(table: &str) -> Vec<Key> {
    fields::keys(table, |f| {
        let mut layer = LayerConfig { name: None, init: None, layer: LayerSpec::Flatten(Flatten) };
        f.required("kind", "What it is", kind(), &mut layer.layer);
        layer.fields(f);
        for (name, new) in LayerSpec::all() {
            layer.layer = new;
            f.of_kind(name, |f| layer.settings(f));
        }
    })
}

/// Shows layers that a layer is made of; reading them takes the blocks that have names.
fn inner(f: &mut Fields<'_>, key: &'static str, meaning: &'static str, layers: &[LayerConfig], default: Option<&str>) {
    let written = format!("[{}]", layers.iter().map(LayerConfig::write).collect::<Vec<_>>().join(", "));
    f.shown(key, meaning, "a list of layers", Some(written), default.map(str::to_owned));
}

/// The same for those that may also be a block by its name.
fn body(f: &mut Fields<'_>, layers: &[LayerConfig]) {
    inner(f, "layers", "The layers, in order", layers, None);
    f.shown("use", "The block whose layers they are", "a string", None, None);
    f.shown("with", "Values of the block's parameters", "a table", None, None);
}

/// The network's layers.
pub(super) fn build(layers: &[LayerConfig]) -> Block {
    let mut block = Block::new();
    for LayerConfig { name, init, layer } in layers {
        block.push(layer.build());
        if let Some(initializer) = init {
            block.initialize_last(*initializer);
        }
        if let Some(name) = name {
            block.name_last(name);
        }
    }
    block
}

impl Settings for Linear {
    fn fields(&mut self, f: &mut Fields<'_>) {
        f.required("out", "the number of outputs", whole(1..), &mut self.out);
        f.field("bias", "Whether something is added", flag(), &mut self.bias);
    }
}

impl Settings for Reshape {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let dims = shape().map(|dims| dims.into(), |shape: &Shape| shape.dims().to_vec());
        f.required("shape", "a sample's dimensions", dims, &mut self.0);
    }
}

impl Settings for Dropout {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let purpose = "the probability that an element is dropped";
        f.required("probability", purpose, single(0.0..1.0), &mut self.probability);
    }
}

impl Settings for Activation {
    fn fields(&mut self, f: &mut Fields<'_>) {
        let (key, meaning, scalar) = match self {
            Self::LeakyRelu(slope) => ("slope", "Slope below 0", slope),
            Self::Elu(alpha) => ("alpha", "How far it falls below 0", alpha),
            _ => return,
        };
        let mut value = scalar.get();
        f.field(key, meaning, single(..), &mut value);
        *scalar = value.into();
    }
}

impl Settings for Flatten {}
impl Settings for Softmax {}
