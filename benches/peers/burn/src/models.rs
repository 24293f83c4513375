//! The networks of `../mlp.toml`, `../cnn.toml` and `../gpt.toml`, in Burn's terms.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::activation::{gelu, relu, softmax};

/// 784-512-512-10.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    head: Linear,
}

impl Mlp {
    pub fn new(device: &Device) -> Self {
        let layers = [(784, 512), (512, 512)].map(|(from, to)| LinearConfig::new(from, to).init(device)).into();
        Self { layers, head: LinearConfig::new(512, 10).init(device) }
    }

    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.head.forward(self.layers.iter().fold(x, |x, layer| relu(layer.forward(x))))
    }
}

/// Two convolutions, a pool, a linear layer.
#[derive(Module, Debug)]
pub struct Cnn {
    convolutions: Vec<Conv2d>,
    pool: MaxPool2d,
    head: Linear,
}

impl Cnn {
    pub fn new(device: &Device) -> Self {
        let convolutions = [[1, 32], [32, 64]].map(|channels| Conv2dConfig::new(channels, [3, 3]).init(device)).into();
        let pool = MaxPool2dConfig::new([2, 2]).init();
        Self { convolutions, pool, head: LinearConfig::new(9216, 10).init(device) }
    }

    pub fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let rows = x.dims()[0];
        let x = self.convolutions.iter().fold(x, |x, convolution| relu(convolution.forward(x)));
        self.head.forward(self.pool.forward(x).reshape::<2, _>([rows, 9216]))
    }
}

/// Attention and MLP, each with a norm in front and around them a residual connection.
#[derive(Module, Debug)]
pub struct Block {
    heads: usize,
    norms: Vec<LayerNorm>,
    qkv: Linear,
    out: Linear,
    wide: Linear,
    narrow: Linear,
}

impl Block {
    fn new(width: usize, heads: usize, device: &Device) -> Self {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Self {
            heads,
            norms: (0..2).map(|_| LayerNormConfig::new(width).init(device)).collect(),
            qkv: linear(width, 3 * width),
            out: linear(width, width),
            wide: linear(width, 4 * width),
            narrow: linear(4 * width, width),
        }
    }

    fn forward(&self, x: Tensor<3>, mask: Tensor<4, Bool>) -> Tensor<3> {
        let [rows, length, width] = x.dims();
        let of_head = width / self.heads;
        let qkv = self.qkv.forward(self.norms[0].forward(x.clone()));
        let [query, key, value] = [0, 1, 2].map(|part| {
            let part = qkv.clone().narrow(2, part * width, width);
            part.reshape::<4, _>([rows, length, self.heads, of_head]).swap_dims(1, 2)
        });
        // Written out: Burn's own attention becomes these ops, too, where it is differentiated.
        let scores = query.matmul(key.swap_dims(2, 3)).div_scalar((of_head as f32).sqrt());
        let mixed = softmax(scores.mask_fill(mask, -1e9_f32), 3).matmul(value);
        let x = x + self.out.forward(mixed.swap_dims(1, 2).reshape::<3, _>([rows, length, width]));
        let hidden = gelu(self.wide.forward(self.norms[1].forward(x.clone())));
        x + self.narrow.forward(hidden)
    }
}

/// A GPT with learned positions and a head of its own.
#[derive(Module, Debug)]
pub struct Gpt {
    heads: usize,
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    pub fn new(vocabulary: usize, length: usize, width: usize, heads: usize, depth: usize, device: &Device) -> Self {
        Self {
            heads,
            tokens: EmbeddingConfig::new(vocabulary, width).init(device),
            positions: EmbeddingConfig::new(length, width).init(device),
            blocks: (0..depth).map(|_| Block::new(width, heads, device)).collect(),
            norm: LayerNormConfig::new(width).init(device),
            head: LinearConfig::new(width, vocabulary).with_bias(false).init(device),
        }
    }

    /// The logits of (rows, length) tokens.
    pub fn forward(&self, tokens: Tensor<2, Int>, device: &Device) -> Tensor<3> {
        let [rows, length] = tokens.dims();
        let positions = Tensor::<1, Int>::arange(0..length as i64, device).reshape::<2, _>([1, length]);
        let mask = Tensor::<4, Bool>::tril_mask([1, 1, length, length], 0, device);
        let mask = mask.expand::<4, _>([rows, self.heads, length, length]);
        let x = self.tokens.forward(tokens) + self.positions.forward(positions);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x, mask.clone()));
        self.head.forward(self.norm.forward(x))
    }
}
