//! Language models, token by token: carried keys and values against whole windows.

use std::sync::Arc;

use everygpu::nn::layers::{Embedding, Initializer, LayerNorm, Positions, RmsNorm, SelfAttention};
use everygpu::nn::models::Gpt;
use everygpu::nn::{Block, Loss, Model, Sequential, decoding_graph, initial_values};
use everygpu::predict::{Generator, Sampling};
use everygpu::prelude::*;
use everygpu::tensor::Named;
use everygpu::train::Flow;

use crate::training::adapters;

const LENGTH: usize = 13;
const VOCABULARY: usize = 11;

fn task(rotary: bool) -> Task {
    let attention = SelfAttention { causal: true, rotary: rotary.then_some(100.0), ..SelfAttention::new(2) };
    let mut inner = Block::default();
    inner.push(Arc::new(LayerNorm::default()));
    inner.push(Arc::new(attention));
    let mut model = Sequential::tokens(LENGTH).layer(Embedding { vocabulary: VOCABULARY, width: 12 });
    if !rotary {
        model = model.layer(Positions);
    }
    let model = model.layer(inner).layer(attention).layer(RmsNorm::default()).linear(7).gelu().linear(VOCABULARY);
    Task { target: TensorType::u32([LENGTH]), ..Task::classification(model) }
}

fn weights(task: &Task) -> Named<Vec<f32>> {
    let mut weights = initial_values(&task.training(1).expect("the model works"), 3);
    // Far enough from uniform that one token is unlike another.
    let of = ["embedding", "tokens", "positions"];
    let vectors = weights.iter_mut().filter(|(name, _)| of.iter().any(|layer| name.starts_with(layer)));
    vectors.flat_map(|(_, values)| values).for_each(|v| *v *= 50.0);
    weights
}

fn text(length: usize) -> Vec<u32> {
    (0..length).map(|i| (i * i * 7 + i / 3) as u32 % VOCABULARY as u32).collect()
}

/// Holds carried steps against whole windows of the same weights, on every adapter.
fn check_steps(task: &Task) {
    let weights = weights(task);
    for adapter in adapters() {
        let mut steps = Generator::new(&adapter, task, &weights).expect("it decodes");
        let mut windows = Generator::windowed(&adapter, task, &weights).expect("the model fits");
        let mut last = Vec::new();
        for length in (1..=LENGTH).chain([4, 5, 2]) {
            let (a, b) = (steps.next(&text(length)).unwrap(), windows.next(&text(length)).unwrap());
            let error = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < 1e-5, "{}, {length} tokens: off by {error}", adapter.label());
            assert_ne!(a, last, "the text matters");
            last = a;
        }
    }
}

#[test]
fn what_is_carried_gives_what_whole_windows_give() {
    for rotary in [false, true] {
        check_steps(&task(rotary));
    }
}

#[test]
fn a_gpts_blocks_carry_what_whole_windows_give() {
    let gpt = Gpt { dropout: 0.1, ..Gpt::new(VOCABULARY, LENGTH, 12, 2, 2) };
    for (tied, rotary) in [(true, None), (false, None), (true, Some(100.0)), (false, Some(100.0))] {
        let model = Gpt { tied, rotary, bias: tied, ..gpt }.build().unwrap();
        let graph = decoding_graph(&model, &Loss::cross_entropy()).expect("it decodes");
        let carried: Vec<_> = graph.carried_tensors().iter().map(|carried| carried.name.as_str()).collect();
        let of = |round| ["keys", "values"].map(|what| format!("blocks.{round}.residual_1.self_attention_1.{what}"));
        assert_eq!(carried, [of(1), of(2)].concat());
        check_steps(&Task { target: TensorType::u32([LENGTH]), ..Task::classification(model) });
    }
}

#[test]
fn a_layer_that_starts_otherwise_decodes_as_the_layer_does() {
    let start = |model: Sequential| model.init(Initializer::XavierNormal);
    assert!(start(Sequential::tokens(LENGTH).layer(Embedding { vocabulary: 5, width: 4 })).decodes());
    assert!(!start(Sequential::new([4, 4]).layer(SelfAttention::new(1))).decodes());
}

#[test]
fn beyond_the_window_half_of_it_is_kept() {
    let (adapter, task) = (&adapters()[0], task(true));
    let weights = weights(&task);
    let mut steps = Generator::new(adapter, &task, &weights).unwrap();
    let mut fresh = Generator::new(adapter, &task, &weights).unwrap();
    for length in 1..=LENGTH {
        steps.next(&text(length)).unwrap();
    }
    // One token too many: what is left are the last 7, and on from there.
    for length in LENGTH + 1..LENGTH + 7 {
        let tail = &text(length)[LENGTH + 1 - LENGTH.div_ceil(2)..];
        assert_eq!(steps.next(&text(length)).unwrap(), fresh.next(tail).unwrap(), "{length}");
    }
}

#[test]
fn generation_is_told_token_by_token_and_may_be_stopped() {
    let (adapter, task) = (&adapters()[0], task(false));
    let weights = weights(&task);
    let mut generator = Generator::new(adapter, &task, &weights).unwrap();
    let sampling = Sampling { seed: 5, ..Sampling::default() };
    let mut told = Vec::new();
    let whole = generator.generate(&[1, 2], 30, &sampling, |token| {
        told.push(token);
        Ok(Flow::Continue)
    });
    let whole = whole.unwrap();
    assert!(whole == told && whole.len() == 30 && whole.iter().all(|&token| (token as usize) < VOCABULARY));
    let mut left = 4;
    let part = generator.generate(&[1, 2], 30, &sampling, |_| {
        left -= 1;
        Ok(if left == 0 { Flow::Stop } else { Flow::Continue })
    });
    assert_eq!(part.unwrap(), whole[..4]);
    let error = generator.generate(&[99], 1, &sampling, |_| Ok(Flow::Continue)).unwrap_err().to_string();
    assert_eq!(error, "prompt: token 99 is not among the 11 that the model knows");
}

#[test]
fn models_that_are_no_language_models_are_refused() {
    let adapter = &adapters()[0];
    let refused = |task: &Task| Generator::new(adapter, task, &weights(task)).unwrap_err().to_string();
    let classifier = Task::classification(Sequential::new([4]).linear(2));
    assert!(refused(&classifier).contains("expected tokens u32[T] to logits [T, vocabulary], got f32[4] to [2]"));
    let ahead =
        Sequential::tokens(4).layer(Embedding { vocabulary: 5, width: 4 }).layer(SelfAttention::new(1)).linear(5);
    let ahead = Task { target: TensorType::u32([4]), ..Task::classification(ahead) };
    assert!(refused(&ahead).contains("it looks ahead"));
}
