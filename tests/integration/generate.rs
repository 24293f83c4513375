//! Language models, token by token: carried keys and values against whole windows.

use std::sync::Arc;

use everygpu::nn::layers::{Embedding, LayerNorm, Positions, RmsNorm, SelfAttention};
use everygpu::nn::{Block, Sequential, initial_values};
use everygpu::prelude::*;
use everygpu::train::{Flow, Generator, Sampling};

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

fn weights(task: &Task) -> Vec<(String, Vec<f32>)> {
    let mut weights = initial_values(&task.training(1).expect("the model works"), 3);
    // Far enough from uniform that one token is unlike another.
    let vectors = weights.iter_mut().filter(|(name, _)| name.starts_with("embedding") || name.starts_with("positions"));
    vectors.flat_map(|(_, values)| values).for_each(|v| *v *= 50.0);
    weights
}

fn text(length: usize) -> Vec<u32> {
    (0..length).map(|i| (i * i * 7 + i / 3) as u32 % VOCABULARY as u32).collect()
}

#[test]
fn what_is_carried_gives_what_whole_windows_give() {
    for adapter in adapters() {
        for rotary in [false, true] {
            let task = task(rotary);
            let weights = weights(&task);
            let mut steps = Generator::new(&adapter, &task, &weights).expect("it decodes");
            let mut windows = Generator::windowed(&adapter, &task, &weights).expect("the model fits");
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
