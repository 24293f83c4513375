//! A decoder-only transformer for text.

use super::transformer::Transformer;
use crate::error::{Error, Result};
use crate::nn::Sequential;
use crate::nn::layers::{
    Activation, Dropout, Embedding, Initializer, LayerNorm, Linear, Positions, SelfAttention, TiedLinear,
};

/// Standard deviation of initial weights, as in GPT-2.
const DEVIATION: f32 = 0.02;

/// GPT-2's network (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): tokens \[T\] to
/// logits \[T, vocabulary\] for the token behind each. Pre-norm blocks of causal attention and an MLP with GELU (tanh
/// form).
///
/// Weights start as there: normal with deviation 0.02, in the 2 · depth layers that add to the residual path
/// (attention's output projection, the MLP's second layer) with 0.02/√(2 · depth); biases are zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpt {
    /// Number of tokens.
    pub vocabulary: usize,
    /// T, tokens of a sequence.
    pub length: usize,
    /// Channels.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Attention heads; divides the channels.
    pub heads: usize,
    /// Probability of dropout behind the embedding, attention and MLP.
    pub dropout: f32,
    /// Whether the head shares the embedding's weight.
    pub tied: bool,
    /// Base of rotary positions, usually 10,000; `None`: learned positions.
    pub rotary: Option<f32>,
    /// Whether linear layers and norms have biases; the head has none.
    pub bias: bool,
}

impl Gpt {
    /// A network of this shape with learned positions, tied head, biases and no dropout.
    pub const fn new(vocabulary: usize, length: usize, width: usize, depth: usize, heads: usize) -> Self {
        Self { vocabulary, length, width, depth, heads, dropout: 0.0, tied: true, rotary: None, bias: true }
    }

    /// The small GPT-2: 124,439,808 parameters.
    pub const fn gpt2() -> Self {
        Self::new(50257, 1024, 768, 12, 12)
    }

    /// The network for `length` tokens.
    ///
    /// # Errors
    /// When there is no block.
    pub fn build(&self) -> Result<Sequential> {
        if self.depth == 0 {
            return Err(Error::invalid("depth of a GPT", "expected at least 1 block, got 0"));
        }
        let mut model = Sequential::tokens(self.length)
            .layer(Embedding { vocabulary: self.vocabulary, width: self.width })
            .named("tokens");
        if self.rotary.is_none() {
            model = model.layer(Positions);
        }
        let attention =
            SelfAttention { causal: true, rotary: self.rotary, bias: self.bias, ..SelfAttention::new(self.heads) };
        let transformer = Transformer {
            depth: self.depth,
            width: self.width,
            attention,
            activation: Activation::GeluTanh,
            dropout: self.dropout,
            deviation: Some(DEVIATION),
        };
        let model = model
            .layer(Dropout { probability: self.dropout })
            .layer(transformer.blocks())
            .named("blocks")
            .layer(LayerNorm { bias: self.bias, ..LayerNorm::default() });
        Ok(if self.tied {
            model.layer(TiedLinear::new("tokens"))
        } else {
            let head = model.layer(Linear { bias: false, ..Linear::new(self.vocabulary) });
            head.init(Initializer::Normal { deviation: DEVIATION })
        })
    }
}
