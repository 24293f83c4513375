//! Models as predictions are made with them, for one sample and for five.

use std::sync::Arc;

use everygpu::data::Border;
use everygpu::graph::{Parameter, interpret};
use everygpu::kernel::Step;
use everygpu::nn::layers::*;
use everygpu::nn::models;
use everygpu::op::{Fill, Reference};
use everygpu::prelude::*;
use everygpu::rng::Stream;
use everygpu::tensor::{DType, Named};

use super::{Case, check};

/// Tokens that there are.
const TOKENS: u32 = 11;

/// A model of `task` with random weights, and what its references give.
fn case(name: &str, task: &Task, normalizer: &Normalizer) -> Case {
    bordered(name, task, Border::default(), normalizer)
}

/// The same for samples that get a border first.
fn bordered(name: &str, task: &Task, border: Border, normalizer: &Normalizer) -> Case {
    let mut stream = Stream::new(1, name);
    let graph = task.prediction(1).expect("the model works");
    let weights = graph.parameters().iter().map(|p| {
        let ty = TensorType::f32(p.shape.clone());
        // Variances are positive, so let all of it be.
        let fill = if p.name.ends_with("running_var") { Fill::Positive } else { Fill::Normal };
        let values: Vec<_> = fill.tensor(&ty, &mut stream).as_f32().expect("floats").iter().map(|v| v * 0.4).collect();
        (&p.name, values)
    });
    let weights = Named::of(weights).expect("names are unique");
    let model = task.onnx(border, normalizer, &weights).and_then(|model| model.encode());
    let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
    let runs = [1, 5].map(|samples| {
        let ty = task.model.input();
        let fill = if ty.dtype == DType::U32 { Fill::Below(TOKENS) } else { Fill::Normal };
        let ty = TensorType { shape: border.inside(&ty.shape).expect("it fits").batched(samples), dtype: ty.dtype };
        let input = fill.tensor(&ty, &mut stream);
        let graph = task.prediction(samples).expect("the model works");
        let changed = border.apply_inputs(input.clone()).and_then(|input| normalizer.apply_inputs(input));
        let changed = Reference::from(&changed.expect("it fits"));
        let value = |p: &Parameter| Reference::from_fn(p.shape.clone(), |i| f64::from(weights[&p.name][i]));
        let parameters: Vec<_> = graph.parameters().iter().map(value).collect();
        let expected = interpret(&graph, &[changed], &parameters, &Step::default(), &[graph.outputs()[0].1]);
        let expected = expected.expect("the reference runs").remove(0);
        let values = expected.data.iter().map(|&v| v as f32).collect();
        let expected = HostTensor::f32(expected.shape, values).expect("as many as there are");
        [("input", input), ("prediction", expected)].map(|tensor| Named::of([tensor]).expect("one name"))
    });
    Case { name: name.to_owned(), model, runs: runs.into() }
}

/// The smallest of models.
pub fn linear() -> Case {
    case("linear", &Task::regression(Sequential::new([3]).linear(2), [2]), &Normalizer::None)
}

/// A model whose values are predicted as they are.
fn values(name: &str, model: Sequential) -> Case {
    case(name, &Task::regression(model, []), &Normalizer::None)
}

fn images() -> Sequential {
    Sequential::new([4, 9, 7])
}

#[test]
fn classifiers_take_values_as_they_are_in_the_data() {
    let image = || images().conv2d(6, 3, 1).relu().max_pool2d(2).flatten().dropout(0.5).linear(5);
    let channels = Normalizer::Standardize { run: 63, mean: vec![1., 2., -3., 0.], std: vec![0.5, 3., 1., 2.] };
    let features = Normalizer::Standardize { run: 1, mean: vec![0.5; 3], std: vec![1.5, 0.1, 2.0] };
    let table = || Sequential::new([3]).linear(7).gelu().linear(4);
    check(&[
        linear(),
        case("raw", &Task::classification(image()), &Normalizer::None),
        case("channels", &Task::classification(image()), &channels),
        bordered("border", &Task::classification(image()), Border([1, 0, 2, 3]), &channels),
        case("scaled", &Task::classification(image()), &Normalizer::Scale { factor: 1.0 / 255.0 }),
        case("features", &Task::classification(table()), &features),
        case(
            "labels",
            &Task { loss: Loss::binary_cross_entropy(), ..Task::regression(table(), [4]) },
            &Normalizer::None,
        ),
    ]);
}

#[test]
fn layers_of_images() {
    let conv = Conv2d { groups: 2, dilation: [2, 1], stride: [1, 2], ..Conv2d::new(6, 3) };
    let up = |to, interpolation| Upsample { to, interpolation };
    let transposed = ConvTranspose2d {
        stride: [2, 3],
        padding: [1, 0, 0, 1],
        output_padding: [1, 0],
        groups: 2,
        ..ConvTranspose2d::new(6, 3)
    };
    let same = Conv2d::new(3, 4).padding(Padding::Same);
    let mut cases = vec![
        values("conv2d", images().layer(conv.padding(Padding::Sides([2, 1, 0, 3])))),
        values("same", images().layer(Conv2d { bias: false, ..same }).gelu()),
        values("transposed", images().layer(transposed).layer(ConvTranspose2d { bias: false, ..transposed })),
        values("pools", images().layer(MaxPool2d { padding: Padding::Sides([1, 0, 1, 1]), ..MaxPool2d::new(3) })),
        values("global_max", images().layer(GlobalMaxPool).linear(2)),
        values("global_avg", images().layer(GlobalAvgPool)),
        values("group_norm", images().layer(GroupNorm::new(2)).relu()),
        values("nearest", images().layer(up(Resolution::Size([4, 13]), Interpolation::Nearest))),
        values("bilinear", images().layer(up(Resolution::Scale([2, 3]), Interpolation::Bilinear))),
        values("reshape", images().reshape([9, 28]).linear(3)),
    ];
    for (count_include_pad, name) in [(true, "avg_with"), (false, "avg_without")] {
        let pool = AvgPool2d { padding: Padding::Sides([1, 0, 1, 1]), count_include_pad, ..AvgPool2d::new(2) };
        cases.push(values(name, images().layer(pool)));
    }
    for size in [[1, 1], [3, 7], [4, 5]] {
        cases.push(values(&format!("adaptive_{}", size[0]), images().layer(AdaptiveAvgPool2d { size })));
    }
    for f in Activation::ALL {
        cases.push(values(f.kind(), images().layer(f).layer(Conv2d::new(2, 1)).layer(f).flatten().linear(3).layer(f)));
    }
    check(&cases);
}

#[test]
fn layers_of_sequences() {
    let sequence = || Sequential::new([6, 8]);
    let attention = SelfAttention::new(2);
    let conv = Conv1d { stride: 2, padding: None, dilation: 2, groups: 3, ..Conv1d::new(9, 3) };
    let block = |model: Sequential| {
        let rotary = SelfAttention { causal: true, rotary: Some(10_000.0), bias: false, ..attention };
        model.layer(LayerNorm::default()).layer(rotary).layer(RmsNorm::default()).linear(16).gelu().linear(8)
    };
    let tokens = || Sequential::tokens(6).layer(Embedding { vocabulary: TOKENS as usize, width: 8 }).layer(Positions);
    let language = block(block(tokens())).linear(TOKENS as usize);
    let mut task = Task::classification(language);
    task.target = TensorType::u32([6]);
    check(&[
        values("attention", sequence().layer(attention).layer(LayerNorm { bias: false, ..LayerNorm::default() })),
        values("causal", sequence().layer(SelfAttention { causal: true, ..attention }).softmax()),
        values("conv1d", sequence().layer(conv).relu().layer(GlobalMaxPool)),
        values("of_tokens", tokens().flatten().linear(3)),
        case("language", &task, &Normalizer::None),
    ]);
}

#[test]
fn recurrent_layers() {
    let sequence = || Sequential::new([6, 5]);
    let two = |of: Recurrent| Recurrent { layers: 2, sequence: true, ..of };
    check(&[
        values("lstm", sequence().layer(Recurrent::lstm(7)).linear(2)),
        values("gru", sequence().layer(Recurrent::gru(7)).linear(2)),
        values("lstm_2", sequence().layer(two(Recurrent::lstm(4))).layer(two(Recurrent::gru(3)))),
    ]);
}

#[test]
fn ready_models() {
    let batch_norm = images().layer(Conv2d::new(6, 3)).layer(BatchNorm::default()).relu().layer(GlobalAvgPool);
    let gpt = models::Gpt::new(TOKENS as usize, 8, 12, 2, 3).build();
    let mut language = Task::classification(gpt.expect("the sizes fit"));
    language.target = TensorType::u32([8]);
    let plain = BatchNorm { affine: false, ..BatchNorm::default() };
    check(&[
        values("batch_norm", batch_norm.linear(3)),
        values("batch_norm_plain", Sequential::new([5]).linear(4).layer(plain)),
        values("lenet", models::lenet([1, 28, 28], 10)),
        values("resnet", models::ResNet::small(8, 10).expect("a depth").build([3, 16, 16])),
        values("autoencoder", models::Autoencoder::new(&[8, 4]).build([1, 8, 8]).expect("the sizes fit")),
        values("mobilenet", models::MobileNet { width: 0.125, ..models::MobileNet::new(10) }.build([3, 32, 32])),
        values("vit", models::Vit::new(10, 4, 12, 2, 3).build([3, 8, 12]).expect("the sizes fit")),
        case("gpt", &language, &Normalizer::None),
    ]);
}

/// A model that computes with the number of samples.
struct OfAll;

impl Model for OfAll {
    fn input(&self) -> TensorType {
        TensorType::f32([2])
    }

    fn forward(
        &self,
        graph: &mut everygpu::graph::Graph,
        x: everygpu::op::ValueId,
        _: everygpu::nn::Mode,
    ) -> Result<everygpu::op::ValueId> {
        let mean = graph.scoped("middle", |graph| everygpu::op::reduce::mean(graph, x, &[0], true))?;
        graph.apply(everygpu::op::Sub, &[x, mean])
    }
}

#[test]
fn what_a_model_cannot_express_is_named() {
    let error =
        |task: Task| task.onnx(Border::default(), &Normalizer::None, &Named::default()).unwrap_err().to_string();
    let of_all = Task { model: Arc::new(OfAll), ..Task::regression(images(), [2]) };
    let message = "layer middle (math): cannot be written for any number of samples: it computes with that number";
    assert_eq!(error(of_all), message);
    let linear = Task::regression(Sequential::new([3]).linear(2), [2]);
    assert_eq!(error(linear), "parameter linear_1.weight: expected values for [2, 3], got none");
}
