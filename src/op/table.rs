//! The list of all ops.

use super::Example;
use super::{
    activation, activation_grad, adaptive_avg_pool2d, adaptive_avg_pool2d_grad, argmax, attention, attention_grad,
    avg_pool2d, avg_pool2d_grad, batch_norm, batch_norm_grad, batch_norm_grad_sums, batch_norm_sums, binary, concat,
    conv2d, conv2d_grad_bias, conv2d_grad_input, conv2d_grad_weight, correct, dropout, embedding, embedding_grad,
    expand, gather, gather_grad, math, math_grad, matmul, max_pool2d, max_pool2d_grad, mean_squared_error,
    mean_squared_error_grad, normalize, normalize_grad, normalize_grad_weight, pad, recurrent, recurrent_grad, reshape,
    rotary, rotary_turns, slice, softmax, softmax_cross_entropy, softmax_cross_entropy_grad, softmax_grad, sum_to,
    transpose, upsample2d, upsample2d_grad, weighted_sum, where_, write_row,
};

/// A line of [`OPS`].
pub struct Entry {
    /// The op's name.
    pub name: &'static str,
    /// Its test cases: awkward sizes (1, 63, 65, primes, off-tile) and every variant of its shader.
    pub examples: fn() -> Vec<Example>,
}

/// Every op. Adding one means a file, a shader and a line here.
pub const OPS: &[Entry] = &[
    activation::ENTRY,
    activation_grad::ENTRY,
    attention::ENTRY,
    attention_grad::ENTRY,
    adaptive_avg_pool2d::ENTRY,
    adaptive_avg_pool2d_grad::ENTRY,
    argmax::ENTRY,
    avg_pool2d::ENTRY,
    avg_pool2d_grad::ENTRY,
    batch_norm::ENTRY,
    batch_norm_grad::ENTRY,
    batch_norm_grad_sums::ENTRY,
    batch_norm_sums::ENTRY,
    binary::ENTRY,
    concat::ENTRY,
    conv2d::ENTRY,
    conv2d_grad_bias::ENTRY,
    conv2d_grad_input::ENTRY,
    conv2d_grad_weight::ENTRY,
    correct::ENTRY,
    dropout::ENTRY,
    embedding::ENTRY,
    embedding_grad::ENTRY,
    expand::ENTRY,
    gather::ENTRY,
    gather_grad::ENTRY,
    math::ENTRY,
    math_grad::ENTRY,
    matmul::ENTRY,
    max_pool2d::ENTRY,
    max_pool2d_grad::ENTRY,
    mean_squared_error::ENTRY,
    mean_squared_error_grad::ENTRY,
    normalize::ENTRY,
    normalize_grad::ENTRY,
    normalize_grad_weight::ENTRY,
    recurrent::ENTRY,
    recurrent_grad::ENTRY,
    reshape::ENTRY,
    rotary::ENTRY,
    rotary_turns::ENTRY,
    pad::ENTRY,
    slice::ENTRY,
    softmax::ENTRY,
    softmax_cross_entropy::ENTRY,
    softmax_cross_entropy_grad::ENTRY,
    softmax_grad::ENTRY,
    sum_to::ENTRY,
    transpose::ENTRY,
    upsample2d::ENTRY,
    upsample2d_grad::ENTRY,
    weighted_sum::ENTRY,
    where_::ENTRY,
    write_row::ENTRY,
];
