//! Whole networks: names, fusion, messages, and gradients against finite differences.

mod batch_norm;
mod compose;
mod recurrent;

use std::sync::Arc;

use super::graphs::PREDICTION;
use super::layers::{
    AdaptiveAvgPool2d, AvgPool2d, Conv1d, Conv2d, ConvTranspose2d, Embedding, GlobalAvgPool, GlobalMaxPool, GroupNorm,
    Interpolation, LayerNorm, Linear, Padding, Positions, Resolution, RmsNorm, SelfAttention, Upsample,
};
use super::*;
use crate::graph::{Accumulator, interpret};
use crate::kernel::Step;
use crate::op::{Activation, Reference};
use crate::rng::Stream;

fn mlp() -> Sequential {
    Sequential::new([1, 4, 4]).flatten().linear(8).relu().dropout(0.1).linear(3)
}

pub(super) fn cnn() -> Sequential {
    Sequential::new([1, 6, 6])
        .conv2d(2, 3, Padding::Same)
        .named("stem")
        .tanh()
        .layer(AvgPool2d::new(2))
        .layer(Conv2d { groups: 2, ..Conv2d::new(4, 2) })
        .gelu()
        .flatten()
        .linear(3)
}

pub(super) fn train(model: &dyn Model, micro_batch: usize) -> Result<Graph> {
    training_graph(model, &Loss::cross_entropy(), &TensorType::u32([]), micro_batch)
}

pub(super) fn parameters(graph: &Graph) -> Vec<String> {
    graph.parameters().iter().map(|p| format!("{} {}", p.name, p.shape)).collect()
}

pub(super) fn message(model: &Sequential) -> String {
    train(model, 2).unwrap_err().to_string()
}

#[test]
fn parameters_are_named_after_layers_and_survive_layers_without_any() {
    let graph = train(&mlp(), 5).unwrap();
    let expected = ["linear_1.weight [8, 16]", "linear_1.bias [8]", "linear_2.weight [3, 8]", "linear_2.bias [3]"];
    assert_eq!(parameters(&graph), expected);
    let plain = train(&Sequential::new([16]).linear(8).linear(3), 5).unwrap();
    assert_eq!(parameters(&plain), expected);
    let graph = train(&cnn(), 2).unwrap();
    assert_eq!(parameters(&graph)[..3], ["stem.weight [2, 1, 3, 3]", "stem.bias [2]", "conv2d_2.weight [4, 1, 2, 2]"]);
}

#[test]
fn inputs_and_statistics_stand_in_their_order() {
    let graph = train(&mlp(), 5).unwrap();
    let inputs: Vec<_> = graph.inputs().iter().map(|i| format!("{} {:?}", i.name, graph.shape(i.value))).collect();
    assert_eq!(inputs, ["input [5, 1, 4, 4]", "target [5]", "weight [5]"]);
    let evaluation = evaluation_graph(&mlp(), &Loss::cross_entropy(), &TensorType::u32([]), 7).unwrap();
    let kinds: Vec<_> = evaluation.accumulators().iter().map(|(a, _)| *a).collect();
    assert_eq!(kinds, [Accumulator::Statistic(0), Accumulator::Statistic(1)]);
    assert!(!evaluation.to_string().contains("Dropout"), "{evaluation}");
    let prediction = prediction_graph(&mlp(), &Loss::cross_entropy(), 7).unwrap();
    assert_eq!((prediction.inputs().len(), prediction.outputs()[0].0.as_str()), (1, PREDICTION));
    assert!(prediction.to_string().contains("Softmax("), "{prediction}");
    assert_eq!(parameters(&prediction), parameters(&graph));
}

#[test]
fn activations_are_fused_where_the_backward_pass_does_not_pay_for_it() {
    let dump = train(&cnn(), 2).unwrap().to_string();
    assert!(dump.contains("activation: Some(Tanh) }(input, stem.weight, stem.bias)  # stem"), "{dump}");
    assert!(dump.contains("Gelu(%"), "gelu's derivative needs its input: {dump}");
    let dump = evaluation_graph(&cnn(), &Loss::cross_entropy(), &TensorType::u32([]), 2).unwrap().to_string();
    assert!(dump.contains("activation: Some(Gelu) }"), "{dump}");
    let dump = train(&mlp(), 2).unwrap().to_string();
    assert!(dump.contains("activation: Some(Relu) }"), "{dump}");
}

#[test]
fn initial_values_do_not_depend_on_the_micro_batch_or_the_mode() {
    let values = initial_values(&train(&cnn(), 1).unwrap(), 3);
    assert_eq!(values, initial_values(&train(&cnn(), 9).unwrap(), 3));
    assert_eq!(values, initial_values(&prediction_graph(&cnn(), &Loss::cross_entropy(), 4).unwrap(), 3));
}

#[test]
fn dropout_sites_differ_between_layers_and_are_the_same_in_every_graph() {
    let model = Sequential::new([4]).dropout(0.5).linear(4).dropout(0.5).linear(2);
    let sites = |micro_batch| -> Vec<String> {
        let dump = train(&model, micro_batch).unwrap().to_string();
        dump.lines()
            .filter(|l| l.contains("# dropout"))
            .filter_map(|l| Some(l.split_once("site: ")?.1.into()))
            .collect()
    };
    let site = |line: &String| line.split(' ').next().map(str::to_owned);
    let [first, .., last] = &sites(2)[..] else { panic!("two dropouts and a gradient expected") };
    assert_ne!(site(first), site(last));
    assert_eq!(sites(2).iter().map(site).collect::<Vec<_>>(), sites(3).iter().map(site).collect::<Vec<_>>());
}

#[test]
fn layers_that_cannot_work_are_named() {
    let too_large = Sequential::new([1, 4, 4]).layer(Conv2d::new(8, 3)).relu().named("f").conv2d(8, 5, 0);
    assert_eq!(
        message(&too_large),
        "layer 3 (conv2d): kernel 5×5 does not fit the padded input 2×2: got height×width 2×2 with padding [0, 0, 0, 0], \
         expected at least 5×5"
    );
    assert_eq!(
        message(&Sequential::new([1, 4, 4]).linear(3).named("head")),
        "layer 1 (linear 'head'): expected samples of shape [features], got [1, 4, 4]; put a flatten layer in front"
    );
    assert_eq!(
        message(&Sequential::new([16]).conv2d(1, 3, 1)),
        "layer 1 (conv2d): expected samples of shape [channels, height, width], got [16]; a reshape layer in front can \
         make them so"
    );
    assert_eq!(
        message(&Sequential::new([3, 4, 4]).layer(Conv2d { groups: 2, ..Conv2d::new(4, 3) })),
        "layer 1 (conv2d): 3 input and 4 output channels do not divide into 2 groups"
    );
    assert_eq!(
        message(&Sequential::new([1, 4, 4]).reshape([3, 5])),
        "layer 1 (reshape): expected samples of 15 elements for [3, 5], got 16 in [1, 4, 4]"
    );
    assert_eq!(message(&Sequential::new([16]).linear(0)), "layer 1 (linear): expected at least 1 output, got out = 0");
    assert_eq!(
        message(&Sequential::new([16]).dropout(1.0).linear(2)),
        "layer 1 (dropout): expected a probability of at least 0 and below 1, got 1"
    );
    assert_eq!(
        message(&Sequential::new([16]).linear(4).named("a").relu().linear(2).named("a")),
        "layer 3 (linear 'a'): the name 'a' is taken by layer 1 (linear 'a')"
    );
    assert_eq!(message(&Sequential::new([16])), "model: expected at least one layer, got none");
    assert_eq!(
        message(&Sequential::new([1, 4, 4]).conv2d(3, 3, 1)),
        "loss cross-entropy: expected the last layer to give one logit a class, [classes], got [3, 4, 4] for a sample; put \
         a flatten and a linear layer at the end"
    );
    assert_eq!(train(&mlp(), 0).unwrap_err().to_string(), "micro_batch: expected at least 1 sample, got 0");
}

#[test]
fn blocks_nest_with_names_and_messages() {
    let block = |out| Sequential::new([4]).linear(4).relu().linear(out).into_block();
    let model = Sequential::new([4]).layer(block(4)).layer(block(2)).named("head");
    let names: Vec<_> = parameters(&train(&model, 2).unwrap()).into_iter().filter(|n| n.contains("weight")).collect();
    assert_eq!(names[1..3], ["block_1.linear_2.weight [4, 4]", "head.linear_1.weight [4, 4]"]);
    let model = Sequential::new([4]).layer(Sequential::new([4]).linear(4).layer(Linear::new(0)).into_block());
    assert_eq!(message(&model), "layer 1 (block): layer 2 (linear): expected at least 1 output, got out = 0");
}

/// Compares the gradient of a model with three classes along a random direction with the difference quotient.
pub(super) fn check_gradients(model: &dyn Model, input: Reference) {
    let micro_batch = input.shape[0];
    let graph = train(model, micro_batch).unwrap();
    let step = Step { valid: micro_batch as u32, ..Step::default() };
    let mut stream = Stream::new(1, "test");
    let inputs = [
        input,
        Reference::from_fn([micro_batch], |i| (i % 3) as f64),
        Reference::from_fn([micro_batch], |i| [1.0, 0.5, 0.0][i]),
    ];
    let mut values: Vec<Reference> = initial_values(&graph, 5)
        .into_iter()
        .zip(graph.parameters())
        .map(|((_, v), p)| Reference::from_fn(p.shape.clone(), |i| f64::from(v[i])))
        .collect();
    // Running statistics have sums for gradients, and no influence on the loss.
    let trained = |p: &crate::graph::Parameter| if p.role.is_trained() { 1.0 } else { 0.0 };
    let along = |(v, p): (&Reference, _)| v.map(|_| trained(p) * stream.normal());
    let directions: Vec<Reference> = values.iter().zip(graph.parameters()).map(along).collect();
    let of = |accumulator| graph.accumulators().iter().find(|(a, _)| *a == accumulator).expect("it is summed").1;
    let gradients: Vec<_> =
        (0..values.len()).map(|i| of(Accumulator::Gradient(crate::graph::ParameterId(i)))).collect();
    let analytic: f64 = interpret(&graph, &inputs, &values, &step, &gradients)
        .unwrap()
        .iter()
        .zip(&directions)
        .map(|(g, d)| g.data.iter().zip(&d.data).map(|(g, d)| g * d).sum::<f64>())
        .sum();
    let epsilon = 1e-6;
    let mut loss_at = |shift: f64| {
        values.iter_mut().zip(&directions).for_each(|(v, d)| *v = v.zip(d, |v, d| v + shift * d));
        interpret(&graph, &inputs, &values, &step, &[of(Accumulator::Statistic(0))]).unwrap()[0].data[0]
    };
    let (above, below) = (loss_at(epsilon), loss_at(-2.0 * epsilon));
    let numeric = (above - below) / (2.0 * epsilon);
    assert!((analytic - numeric).abs() < 1e-6 * numeric.abs().max(1.0), "{analytic} and {numeric}");
    assert!(numeric.abs() > 1e-3, "the projection sees the gradient");
}

#[test]
fn gradients_of_a_cnn_agree_with_finite_differences() {
    let mut stream = Stream::new(2, "input");
    check_gradients(&cnn(), Reference::from_fn([3, 1, 6, 6], |_| stream.normal()));
}

/// Tokens [6] → logits [3]: every layer of a transformer.
fn transformer() -> Sequential {
    Sequential::tokens(6)
        .layer(Embedding { vocabulary: 7, width: 8 })
        .layer(Positions)
        .layer(LayerNorm::default())
        .layer(SelfAttention { causal: true, rotary: Some(100.0), ..SelfAttention::new(2) })
        .named("attention")
        .layer(RmsNorm::default())
        .layer(GroupNorm::new(2))
        .flatten()
        .linear(3)
}

#[test]
fn gradients_of_a_transformer_agree_with_finite_differences() {
    check_gradients(&transformer(), Reference::from_fn([3, 6], |i| (i * 5 % 7) as f64));
}

#[test]
fn a_transformer_has_pytorchs_parameters() {
    let expected = [
        "embedding_1.weight [7, 8]",
        "positions_1.weight [6, 8]",
        "layer_norm_1.weight [8]",
        "layer_norm_1.bias [8]",
        "attention.in_proj_weight [24, 8]",
        "attention.in_proj_bias [24]",
        "attention.out_proj.weight [8, 8]",
        "attention.out_proj.bias [8]",
        "rms_norm_1.weight [8]",
        "group_norm_1.weight [6]",
    ];
    assert_eq!(parameters(&train(&transformer(), 2).unwrap())[..10], expected);
    let tokens = Sequential::new([6]).layer(Embedding { vocabulary: 7, width: 8 });
    assert_eq!(message(&tokens), "layer 1 (embedding): expected tokens (u32), got f32[2, 6]");
    let heads = Sequential::new([6, 8]).layer(SelfAttention::new(3));
    assert_eq!(message(&heads), "layer 1 (self_attention): expected heads that divide 8 channels, got 3");
}

#[test]
fn output_shapes_are_known_without_a_data_set() {
    assert_eq!(output_shape(&cnn()).unwrap(), Shape::from([3]));
    assert_eq!(
        output_shape(&Sequential::new([1, 7, 7]).max_pool2d(2).layer(Activation::Relu)).unwrap(),
        [1, 3, 3].into()
    );
}

#[test]
fn layers_that_change_resolution_give_pytorchs_shapes() {
    let up = ConvTranspose2d { stride: [2, 2], padding: [1; 4], output_padding: [1; 2], ..ConvTranspose2d::new(4, 3) };
    let scaled = |scale| Upsample { to: Resolution::Scale(scale), interpolation: Interpolation::Bilinear };
    let image = |layer: Arc<dyn Layer>| output_shape(&Sequential::new([2, 5, 7]).shared(layer)).unwrap();
    assert_eq!(image(Arc::new(up)), [4, 10, 14].into());
    assert_eq!(image(Arc::new(scaled([2, 3]))), [2, 10, 21].into());
    for size in [[1, 1], [5, 7], [2, 3]] {
        assert_eq!(image(Arc::new(AdaptiveAvgPool2d { size })), [2, size[0], size[1]].into());
    }
    assert_eq!(image(Arc::new(GlobalAvgPool)), [2].into());
    assert_eq!(image(Arc::new(GlobalMaxPool)), [2].into());
    let conv = Conv1d { stride: 2, dilation: 2, padding: Some([1, 3]), groups: 2, ..Conv1d::new(6, 3) };
    let line = Sequential::new([4, 11]).layer(conv).relu().layer(GlobalAvgPool);
    assert_eq!(output_shape(&line).unwrap(), [6].into());
    let graph = train(&line, 2).unwrap();
    assert_eq!(parameters(&graph), ["conv1d_1.weight [6, 2, 3]", "conv1d_1.bias [6]"]);
    assert!(graph.to_string().contains("activation: Some(Relu) }"), "{graph}");
    assert_eq!(
        message(&Sequential::new([3]).layer(GlobalAvgPool)),
        "layer 1 (global_avg_pool): expected samples of shape [channels, positions, ..], got [3]"
    );
    assert_eq!(
        message(
            &Sequential::new([1, 2, 2]).layer(ConvTranspose2d { output_padding: [1, 0], ..ConvTranspose2d::new(1, 2) })
        ),
        "layer 1 (conv_transpose2d): expected output_padding below the stride 1, got 1"
    );
}

#[test]
fn an_autoencoder_has_the_right_gradients() {
    let model = Sequential::new([1, 6, 6])
        .layer(Conv2d::new(2, 3).stride(2).padding(1))
        .layer(Activation::Silu)
        .layer(ConvTranspose2d {
            stride: [2, 2],
            padding: [1; 4],
            output_padding: [1; 2],
            ..ConvTranspose2d::new(2, 3)
        })
        .layer(Activation::Elu(1.0.into()))
        .layer(Upsample { to: Resolution::Size([4, 9]), interpolation: Interpolation::Bilinear })
        .layer(AdaptiveAvgPool2d { size: [3, 2] })
        .flatten()
        .reshape([3, 4])
        .layer(Conv1d::new(3, 2))
        .layer(GlobalMaxPool);
    let mut stream = Stream::new(2, "input");
    check_gradients(&model, Reference::from_fn([3, 1, 6, 6], |_| stream.normal()));
}
