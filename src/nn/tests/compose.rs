//! Layers made of layers: names, messages, gradients; shared parameters.

use super::check_gradients;
use crate::nn::layers::{Conv2d, Dropout, Embedding, GlobalAvgPool, LayerNorm, Linear, Repeat, Residual, TiedLinear};
use crate::nn::*;
use crate::op::{Activation, Reference};
use crate::rng::Stream;

fn train(model: &dyn Model) -> Result<Graph> {
    training_graph(model, &Loss::cross_entropy(), &TensorType::u32([]), 2)
}

fn parameters(model: &dyn Model) -> Vec<String> {
    train(model).unwrap().parameters().iter().map(|p| p.name.clone()).collect()
}

fn message(model: &Sequential) -> String {
    train(model).unwrap_err().to_string()
}

fn residual() -> Sequential {
    let conv = |out| Block::new().layer(Conv2d::new(out, 3).padding(1)).layer(Activation::Tanh);
    let projection = Block::new().layer(Conv2d::new(4, 1));
    Sequential::new([2, 4, 4])
        .layer(Repeat { times: 2, body: Block::new().layer(Residual::new(conv(2))).layer(Activation::Sigmoid) })
        .layer(Residual::new(conv(4).layer(Conv2d::new(4, 1))).shortcut(projection))
        .named("wider")
        .layer(GlobalAvgPool)
        .linear(3)
}

#[test]
fn names_tell_the_way_to_a_layer() {
    let names = parameters(&residual());
    let weights: Vec<_> = names.iter().filter_map(|name| name.strip_suffix(".weight")).collect();
    assert_eq!(
        weights,
        [
            "repeat_1.1.residual_1.conv2d_1",
            "repeat_1.2.residual_1.conv2d_1",
            "wider.conv2d_1",
            "wider.conv2d_2",
            "wider.shortcut.conv2d_1",
            "linear_1"
        ]
    );
}

#[test]
fn gradients_run_through_both_paths() {
    let mut stream = Stream::new(2, "input");
    check_gradients(&residual(), Reference::from_fn([3, 2, 4, 4], |_| stream.normal()));
}

#[test]
fn paths_that_do_not_fit_are_told_apart() {
    let conv = || Block::new().layer(Conv2d::new(4, 3).padding(1).stride(2));
    let model = |residual| Sequential::new([2, 8, 8]).layer(residual);
    assert_eq!(
        message(&model(Residual::new(conv()))),
        "layer 1 (residual): the layers give [4, 4, 4], but the shortcut gives [2, 8, 8]; give it a shortcut whose layers \
         make that of it"
    );
    assert_eq!(
        message(&model(Residual::new(conv()).shortcut(Block::new().layer(Conv2d::new(4, 1))))),
        "layer 1 (residual): the layers give [4, 4, 4], but the shortcut gives [4, 8, 8]"
    );
    assert_eq!(
        message(&model(Residual::new(conv()).shortcut(Block::new().layer(Linear::new(0))))),
        "layer 1 (residual): shortcut, layer 1 (linear): expected samples of shape [features], got [2, 8, 8]; put a flatten \
         layer in front"
    );
    let halves = Repeat { times: 5, body: conv().layer(Conv2d::new(2, 2)) };
    assert_eq!(
        message(&Sequential::new([2, 8, 8]).layer(halves)),
        "layer 1 (repeat): round 3, layer 2 (conv2d): kernel 2×2 does not fit the padded input 1×1: got height×width 1×1 \
         with padding [0, 0, 0, 0], expected at least 2×2"
    );
}

#[test]
fn dropout_differs_from_round_to_round() {
    let body = Block::new().layer(Dropout { probability: 0.5 }).layer(Linear::new(4));
    let graph = train(&Sequential::new([4]).layer(Repeat { times: 2, body })).unwrap().to_string();
    let sites: std::collections::HashSet<_> = graph.lines().filter_map(|l| l.split_once("site: ")).collect();
    assert!(sites.len() > 1, "{graph}");
}

fn tied() -> Sequential {
    let inner = Block::new()
        .layer(Embedding { vocabulary: 3, width: 4 })
        .named("wte")
        .layer(LayerNorm::default())
        .layer(TiedLinear::new("wte"));
    Sequential::tokens(5).layer(inner).reshape([15]).linear(3)
}

#[test]
fn a_tied_head_shares_the_embedding_and_both_gradients_add_up() {
    let names = parameters(&tied());
    assert_eq!(names[..3], ["block_1.wte.weight", "block_1.layer_norm_1.weight", "block_1.layer_norm_1.bias"]);
    assert_eq!(names.len(), 5);
    check_gradients(&tied(), Reference::from_fn([3, 5], |i| (i * 5 % 3) as f64));
}

#[test]
fn a_head_tied_to_nothing_says_what_there_is() {
    let model = |to| {
        let embedding = Embedding { vocabulary: 3, width: 4 };
        Sequential::tokens(5).layer(embedding).linear(6).layer(TiedLinear::new(to))
    };
    assert_eq!(
        message(&model("wte")),
        "layer 3 (tied_linear): expected the name of a layer in front of it with a weight (embedding_1, linear_1), got 'wte'"
    );
    assert_eq!(
        message(&model("embedding_1")),
        "layer 3 (tied_linear): the weight [3, 4] of 'embedding_1' does not go with an input [2, 5, 6]"
    );
}
