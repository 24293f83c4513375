//! Ready models: numbers of parameters against those that are known, input sizes, messages, gradients.

use super::*;
use crate::nn::tests::check_gradients;
use crate::nn::{Model, Sequential, initial_values, output_shape, prediction_graph};
use crate::op::Reference;
use crate::rng::Stream;
use crate::tensor::Shape;

/// Trained numbers of the model.
fn parameters(model: &dyn Model) -> usize {
    let graph = prediction_graph(model, &crate::nn::Loss::MeanSquaredError, 1).unwrap();
    graph.parameters().iter().filter(|p| p.role.is_trained()).map(|p| p.shape.elements()).sum()
}

fn output(model: &Sequential) -> Shape {
    output_shape(model).unwrap()
}

#[test]
fn models_have_the_known_numbers_of_parameters() {
    // torchvision's.
    let photograph = [3, 224, 224];
    assert_eq!(parameters(&ResNet::resnet18(1000).build(photograph)), 11_689_512);
    assert_eq!(parameters(&ResNet::resnet34(1000).build(photograph)), 21_797_672);
    assert_eq!(parameters(&ResNet::resnet50(1000).build(photograph)), 25_557_032);
    // By hand: 269,722 and 853,018 with the parameter-free shortcuts of the paper, and two projections with their
    // norms.
    let projections = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64;
    assert_eq!(269_722 + projections, 272_474);
    assert_eq!(parameters(&ResNet::small(20, 10).unwrap().build([3, 32, 32])), 272_474);
    assert_eq!(parameters(&ResNet::small(56, 10).unwrap().build([3, 32, 32])), 853_018 + projections);
    // The paper's 4.2 million; Keras lists 4,231,976 as trainable.
    assert_eq!(parameters(&MobileNet::new(1000).build(photograph)), 4_231_976);
    // Group norm has as many trained numbers.
    let groups = |model: ResNet| parameters(&model.norm(Norm::Group(32)).build(photograph));
    assert_eq!([groups(ResNet::resnet18(1000)), groups(ResNet::resnet50(1000))], [11_689_512, 25_557_032]);
    assert_eq!(parameters(&MobileNet::new(1000).norm(Norm::Group(32)).build(photograph)), 4_231_976);
    assert_eq!(parameters(&Gpt::gpt2().build().unwrap()), 124_439_808);
    // torchvision's 86,567,656 less the class token and its position.
    assert_eq!(parameters(&Vit::base16(1000).build(photograph).unwrap()), 86_567_656 - 2 * 768);
    assert_eq!(parameters(&lenet([1, 32, 32], 10)), 156 + 2416 + (16 * 36 + 1) * 120 + 121 * 84 + 85 * 10);
    assert_eq!(parameters(&mlp([784], &[128, 64], 10)), 785 * 128 + 129 * 64 + 65 * 10);
    let encoder = (9 + 1) * 8 + (8 * 9 + 1) * 16;
    let decoder = (16 * 9) * 8 + 8 + (8 * 9) + 1;
    assert_eq!(parameters(&Autoencoder::new(&[8, 16]).build([1, 28, 28]).unwrap()), encoder + decoder);
}

#[test]
fn options_of_gpt_change_what_they_say() {
    let gpt = Gpt { dropout: 0.1, ..Gpt::new(65, 16, 24, 2, 3) };
    let tied = parameters(&gpt.build().unwrap());
    assert_eq!(parameters(&Gpt { tied: false, ..gpt }.build().unwrap()), tied + 65 * 24);
    assert_eq!(parameters(&Gpt { rotary: Some(1e4), ..gpt }.build().unwrap()), tied - 16 * 24);
    let biases = 2 * (2 + 3 + 1 + 4 + 1) * 24 + 24;
    assert_eq!(parameters(&Gpt { bias: false, ..gpt }.build().unwrap()), tied - biases);
    assert_eq!(output(&gpt.build().unwrap()), [16, 65].into());
    assert!(gpt.build().unwrap().block().names().unwrap().contains(&"blocks".to_owned()));
}

#[test]
fn models_take_images_of_several_sizes() {
    for [channels, height, width] in [[1, 28, 28], [3, 32, 32], [1, 17, 40], [3, 64, 48]] {
        let image = [channels, height, width];
        assert_eq!(output(&mlp(image, &[9], 7)), [7].into());
        assert_eq!(output(&lenet(image, 7)), [7].into());
        assert_eq!(output(&ResNet::small(8, 7).unwrap().build(image)), [7].into());
        assert_eq!(output(&ResNet::resnet18(7).build(image)), [7].into());
        assert_eq!(output(&MobileNet { stride: 1, width: 0.25, ..MobileNet::new(7) }.build(image)), [7].into());
        assert_eq!(output(&Autoencoder::new(&[4, 8, 5]).build(image).unwrap()), image.into());
    }
    for (image, patch) in [([1, 28, 28], 7), ([3, 32, 32], 4), ([1, 16, 40], 8)] {
        assert_eq!(output(&Vit::new(7, patch, 12, 2, 3).build(image).unwrap()), [7].into());
    }
}

/// Radford et al. (2019): deviation 0.02, 1/√N of it where a layer adds to the residual path, of which there are N = 2
/// · depth.
#[test]
fn a_gpt_starts_as_gpt_2_does() {
    let gpt = Gpt { tied: false, ..Gpt::new(300, 40, 60, 8, 5) };
    let graph = prediction_graph(&gpt.build().unwrap(), &crate::nn::Loss::MeanSquaredError, 1).unwrap();
    let (mut plain, mut scaled) = (0, 0);
    for (name, values) in initial_values(&graph, 1) {
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        if name.contains("layer_norm") && ends(&["weight"]) {
            assert!(values.iter().all(|&v| v == 1.0), "{name}");
            continue;
        }
        let expected = match name.as_str() {
            _ if ends(&["bias"]) => 0.0,
            _ if ends(&["out_proj.weight", "linear_2.weight"]) => 0.005,
            _ => 0.02,
        };
        let square: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        let deviation = (square / values.len() as f64).sqrt();
        assert!((deviation - expected).abs() <= 0.06 * expected, "{name}: {deviation}, expected {expected}");
        (plain, scaled) = (plain + usize::from(expected == 0.02), scaled + usize::from(expected == 0.005));
    }
    // Tokens, positions and head; of each block two layers inside and two that end a branch.
    assert_eq!((plain, scaled), (3 + 2 * 8, 2 * 8));
}

#[test]
fn models_that_cannot_be_are_refused() {
    assert_eq!(
        ResNet::small(21, 10).unwrap_err().to_string(),
        "depth of a small ResNet: expected 8, 14, 20, 26, .. (6n + 2), got 21"
    );
    assert_eq!(
        Vit::new(7, 5, 12, 2, 3).build([1, 28, 28]).unwrap_err().to_string(),
        "patch of a ViT: expected one that divides the height and width of the image, got 5 for [1, 28, 28]"
    );
    assert_eq!(
        Gpt::new(65, 16, 24, 0, 3).build().unwrap_err().to_string(),
        "depth of a GPT: expected at least 1 block, got 0"
    );
    assert_eq!(
        Autoencoder::new(&[4]).build([28]).unwrap_err().to_string(),
        "input of an autoencoder: expected samples of shape [channels, height, width], got [28]"
    );
    let heads = Gpt::new(65, 16, 24, 2, 5).build().unwrap();
    assert_eq!(
        output_shape(&heads).unwrap_err().to_string(),
        "layer 4 (repeat 'blocks'): round 1, layer 1 (residual): layer 2 (self_attention): expected heads that divide 24 \
         channels, got 5"
    );
}

#[test]
fn gradients_agree_with_finite_differences() {
    let mut stream = Stream::new(3, "input");
    let mut image = |dims: [usize; 4]| Reference::from_fn(dims, |_| stream.normal());
    let resnet = ResNet { stages: vec![1, 1], width: 2, bottleneck: true, ..ResNet::resnet18(3) };
    check_gradients(&resnet.clone().norm(Norm::Group(2)).build([1, 12, 12]), image([3, 1, 12, 12]));
    check_gradients(&resnet.norm(Norm::Batch(2)).build([1, 12, 12]), image([3, 1, 12, 12]));
    check_gradients(&Vit::new(3, 2, 4, 1, 2).build([1, 4, 6]).unwrap(), image([3, 1, 4, 6]));
    let tokens = Reference::from_fn([3, 5], |i| (i * 5 % 3) as f64);
    check_gradients(&Gpt::new(3, 5, 4, 1, 2).build().unwrap().layer(crate::nn::layers::MeanPositions), tokens);
}
