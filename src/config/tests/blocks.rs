//! Layers made of layers in run files, and named blocks.

use std::path::Path;

use crate::config::*;
use crate::nn::models::{Autoencoder, Gpt, MobileNet, ResNet, Vit};
use crate::nn::{Loss, output_shape, prediction_graph, training_graph};

const RESNET: &str = r#"
[model]
layers = [
    { kind = "conv2d", name = "stem", out = 4, kernel = 3, padding = 1 },
    { kind = "repeat", times = 2, use = "basic", with = { width = 4 } },
    { kind = "block", name = "down", use = "basic", with = { width = 8, stride = 2, shortcut = [
        { kind = "conv2d", out = 8, kernel = 1, stride = 2, bias = false },
    ] } },
    "global_avg_pool",
    { kind = "linear", out = 10 },
]

[model.blocks.basic]
defaults = { stride = 1, shortcut = [] }
layers = [
    { kind = "residual", shortcut = "$shortcut", layers = [
        { kind = "block", use = "conv", with = { width = "$width", stride = "$stride" } },
        "relu",
        { kind = "block", use = "conv", with = { width = "$width", stride = 1 } },
    ] },
    "relu",
]

[model.blocks.conv]
layers = [
    { kind = "conv2d", out = "$width", kernel = 3, stride = "$stride", padding = 1, bias = false },
    { kind = "group_norm", groups = 2 },
]
"#;

fn parse(text: &str) -> Result<RunConfig> {
    RunConfig::parse(text, "run.toml", Path::new("/base"), &[])
}

/// Names and shapes of the parameters for samples [1, 8, 8].
fn parameters(config: &RunConfig) -> Vec<String> {
    let model = config.model(&TensorType::f32([1, 8, 8]), &TensorType::u32([]), Some(10)).unwrap();
    let graph = training_graph(&model, &Loss::cross_entropy(), &TensorType::u32([]), 2).unwrap();
    graph.parameters().iter().map(|p| format!("{} {}", p.name, p.shape)).collect()
}

#[test]
fn blocks_are_used_with_values_repeated_and_nested() {
    let parameters = parameters(&parse(RESNET).unwrap());
    for expected in [
        "stem.weight [4, 1, 3, 3]",
        "repeat_1.1.residual_1.block_1.conv2d_1.weight [4, 4, 3, 3]",
        "repeat_1.2.residual_1.block_2.group_norm_1.bias [4]",
        "down.residual_1.block_1.conv2d_1.weight [8, 4, 3, 3]",
        "down.residual_1.shortcut.conv2d_1.weight [8, 4, 1, 1]",
    ] {
        assert!(parameters.iter().any(|p| p == expected), "{expected} in {parameters:#?}");
    }
    assert_eq!(parameters.len(), 2 + 3 * 6 + 1 + 2);
}

#[test]
fn a_written_model_reads_as_the_same() {
    let config = parse(RESNET).unwrap();
    let written = config.to_toml();
    let again = parse(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(again, config, "{written}");
    assert_eq!(parameters(&again), parameters(&config));
    let recurrent = "[model]\nlayers = [{ kind = \"lstm\", hidden = 8, layers = 2, sequence = true }, \"sequence\", \
                     { kind = \"gru\", hidden = 4 }, \"mean_positions\"]";
    assert_eq!(parse(&parse(recurrent).unwrap().to_toml()).unwrap(), parse(recurrent).unwrap());
    let tied = "[model]\nlayers = [{ kind = \"embedding\", vocabulary = 5, width = 4 }, { kind = \"tied_linear\", to = \
                \"embedding_1\" }]";
    assert_eq!(parse(&parse(tied).unwrap().to_toml()).unwrap(), parse(tied).unwrap());
}

#[test]
fn mistakes_in_blocks_are_named_with_their_way_there() {
    let of = |layers: &str, blocks: &str| {
        parse(&format!("[model]\nlayers = [\n{layers}\n]\n{blocks}")).expect_err(layers).to_string()
    };
    let block = "[model.blocks.a]\nlayers = [{ kind = \"linear\", out = \"$width\" }]";
    for (layers, blocks, expected) in [
        (
            "{ kind = \"block\", use = \"b\" }",
            "[model.blocks.a]\nlayers = [\"relu\"]\n[model.blocks.c]\nlayers = [\"relu\"]",
            "3: model.layers[1]: there is no block 'b'; known: a, c",
        ),
        ("{ kind = \"block\", use = \"b\" }", "", "3: model.layers[1]: there is no block 'b'; define [model.blocks.b]"),
        ("\"relu\"", block, "5: model.blocks.a: no layer uses this block"),
        (
            "{ kind = \"block\", use = \"a\" }",
            block,
            "3: model.layers[1]: block 'a' needs a value: with = { width = … }",
        ),
        (
            "{ kind = \"block\", use = \"a\", with = { width = 3, hight = 4 } }",
            block,
            "3: block 'a' has no parameter '$hight', which model.layers[1] gives; it has $width",
        ),
        (
            "{ kind = \"repeat\", times = 2, use = \"a\", with = { width = 0 } }",
            block,
            "3: model.layers[1] → a.layers[1].out: expected a whole number of at least 1, got 0",
        ),
        (
            "{ kind = \"block\", use = \"a\" }",
            "[model.blocks.a]\nlayers = [\n\"flatten\", { kind = \"block\", use = \"b\" }]\n\
             [model.blocks.b]\nlayers = [{ kind = \"residual\", use = \"a\" }]",
            "9: model.layers[1] → a.layers[2] → b.layers[1]: a block cannot contain itself: a → b → a",
        ),
        (
            "{ kind = \"block\", use = \"a\" }",
            "[model.blocks.a]\nlayers = [\n\"rleu\"]",
            "7: model.layers[1] → a.layers[1]: expected a layer kind (did you mean \"relu\"?), got \"rleu\"",
        ),
        ("{ kind = \"repeat\", layers = [\"relu\"] }", "", "3: model.layers[1].times is missing: how often"),
        (
            "{ kind = \"repeat\", times = 5000, layers = [\"relu\"] }",
            "",
            "3: model.layers[1].times: expected at most 1000, got 5000",
        ),
        ("{ kind = \"block\", layers = [] }", "", "3: model.layers[1]: expected at least one layer, got none"),
        (
            "{ kind = \"block\" }",
            "",
            "3: model.layers[1].layers is missing: the layers, in order; or use = the name of a block",
        ),
        (
            "{ kind = \"block\", use = \"a\", layers = [\"relu\"] }",
            block,
            "3: model.layers[1]: expected either layers or the block to use, got both",
        ),
        (
            "{ kind = \"residual\", layers = [\"relu\"], shortcut = \"none\" }",
            "",
            "3: model.layers[1].shortcut: expected a list of layers, got \"none\"",
        ),
        (
            "\"relu\"",
            "[model.blocks.a]\ndefaults = { x = 1 }\nlayers = [\"relu\"]",
            "6: block 'a' has no parameter '$x', which its defaults give; it has none",
        ),
    ] {
        assert_eq!(of(layers, blocks), format!("run.toml:{expected}"));
    }
}

#[test]
fn blocks_that_expand_without_end_are_refused() {
    let mut text = "[model]\nlayers = [{ kind = \"block\", use = \"b0\" }]\n".to_owned();
    for i in 0..20 {
        let next = format!("{{ kind = \"block\", use = \"b{}\" }}", i + 1);
        text += &format!("[model.blocks.b{i}]\nlayers = [{next}, {next}, {next}]\n");
    }
    text += "[model.blocks.b20]\nlayers = [\"relu\"]\n";
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.ends_with("expected at most 10000 layers, blocks written out; use a repeat"), "{error}");
}

#[test]
fn the_examples_are_the_librarys_models() {
    let images = |text: &str, shape: [usize; 3]| {
        let config = parse(text).unwrap();
        assert_eq!(parse(&config.to_toml()).unwrap(), config);
        config.model(&TensorType::f32(shape), &TensorType::u32([]), None).unwrap()
    };
    let mobilenet = MobileNet { stride: 1, width: 0.25, ..MobileNet::new(10) };
    let gpt = parse(include_str!("../../../examples/gpt.toml")).unwrap();
    assert_eq!(parse(&gpt.to_toml()).unwrap(), gpt);
    for (example, library) in [
        (
            images(include_str!("../../../examples/resnet20.toml"), [1, 32, 32]),
            ResNet::small(20, 10).unwrap().build([1, 32, 32]),
        ),
        (images(include_str!("../../../examples/mobilenet.toml"), [1, 28, 28]), mobilenet.build([1, 28, 28])),
        (
            images(include_str!("../../../examples/vit.toml"), [1, 8, 8]),
            Vit::new(10, 2, 32, 3, 4).build([1, 8, 8]).unwrap(),
        ),
        (
            images(include_str!("../../../examples/autoencoder.toml"), [1, 8, 8]),
            Autoencoder::new(&[16, 32]).build([1, 8, 8]).unwrap(),
        ),
        (
            gpt.model(&TensorType::u32([128]), &TensorType::u32([128]), None).unwrap(),
            Gpt { dropout: 0.1, ..Gpt::new(256, 128, 128, 4, 4) }.build().unwrap(),
        ),
    ] {
        let ops = |model: &Sequential| -> (Vec<String>, Vec<String>) {
            let (mse, target) = (Loss::MeanSquaredError, TensorType::f32(output_shape(model).unwrap()));
            let (prediction, training) = (prediction_graph(model, &mse, 2), training_graph(model, &mse, &target, 2));
            let graphs = [prediction.unwrap(), training.unwrap()];
            let nodes = graphs.iter().flat_map(|graph| graph.nodes());
            let nodes = nodes.map(|node| format!("{:?} {:?}", node.op, node.inputs)).collect();
            (nodes, graphs[0].parameters().iter().map(|p| format!("{} {:?}", p.shape, p.init)).collect())
        };
        assert_eq!(ops(&example), ops(&library));
    }
}
