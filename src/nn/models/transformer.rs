//! The blocks that transformers repeat.

use crate::nn::Block;
use crate::nn::layers::{Activation, Dropout, Initializer, LayerNorm, Linear, Repeat, Residual, SelfAttention};

/// The blocks of a transformer.
pub(super) struct Transformer {
    /// Number of blocks.
    pub depth: usize,
    /// Channels; inside the MLP there are four times as many.
    pub width: usize,
    pub attention: SelfAttention,
    pub activation: Activation,
    /// Probability of dropout behind attention and MLP.
    pub dropout: f32,
    /// How weights start: normal with this deviation, those whose result is added to the residual path divided by
    /// √(2 · depth), the number of them; each layer's own way without it.
    pub deviation: Option<f32>,
}

impl Transformer {
    /// Pre-norm blocks: x + attention(norm(x)), then x + mlp(norm(x)).
    pub(super) fn blocks(&self) -> Repeat {
        let bias = self.attention.bias;
        let linear = |out| Linear { bias, ..Linear::new(out) };
        let norm = || Block::new().layer(LayerNorm { bias, ..LayerNorm::default() });
        let drop = Dropout { probability: self.dropout };
        let inner = self.deviation.map(|deviation| Initializer::Normal { deviation });
        let last = self.deviation.map(|deviation| {
            let deviation = (f64::from(deviation) / (2.0 * self.depth as f64).sqrt()) as f32;
            Initializer::Normal { deviation }
        });
        let attend = norm().layer(SelfAttention { out_init: last, ..self.attention }).starting(inner).layer(drop);
        let mlp = norm().layer(linear(4 * self.width)).starting(inner).layer(self.activation);
        let mlp = mlp.layer(linear(self.width)).starting(last).layer(drop);
        Repeat { times: self.depth, body: Block::new().layer(Residual::new(attend)).layer(Residual::new(mlp)) }
    }
}
