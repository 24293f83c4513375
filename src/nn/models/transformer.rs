//! The block that transformers repeat.

use crate::nn::Block;
use crate::nn::layers::{Activation, Dropout, LayerNorm, Linear, Repeat, Residual, SelfAttention};

/// `depth` pre-norm blocks of `width` channels: x + attention(norm(x)), then x + mlp(norm(x)) with four times the channels
/// inside.
pub(super) fn blocks(
    depth: usize,
    width: usize,
    attention: SelfAttention,
    activation: Activation,
    dropout: f32,
) -> Repeat {
    let bias = attention.bias;
    let (norm, linear) = (LayerNorm { bias, ..LayerNorm::default() }, |out| Linear { bias, ..Linear::new(out) });
    let drop = Dropout { probability: dropout };
    let attend = Block::new().layer(norm).layer(attention).layer(drop);
    let mlp = Block::new().layer(norm).layer(linear(4 * width)).layer(activation).layer(linear(width)).layer(drop);
    Repeat { times: depth, body: Block::new().layer(Residual::new(attend)).layer(Residual::new(mlp)) }
}
