//! Networks with batch norm: parameters, gradients against finite differences, groups, messages.

use super::{check_gradients, cnn, message, parameters, train};
use crate::nn::layers::BatchNorm;
use crate::nn::*;
use crate::op::Reference;
use crate::rng::Stream;

#[test]
fn batch_norm_has_pytorchs_parameters_and_the_right_gradients() {
    let model = || Sequential::new([2, 5, 5]).conv2d(4, 3, 1).layer(BatchNorm::of(2)).tanh().flatten().linear(3);
    let mut stream = Stream::new(2, "input");
    check_gradients(&model(), Reference::from_fn([3, 2, 5, 5], |_| stream.normal()));
    let graph = train(&model(), 3).unwrap();
    let expected = [
        "batch_norm_1.weight [4]",
        "batch_norm_1.bias [4]",
        "batch_norm_1.num_batches_tracked [1]",
        "batch_norm_1.running_mean [4]",
        "batch_norm_1.running_var [4]",
    ];
    assert_eq!(parameters(&graph)[2..7], expected);
    let trained: Vec<bool> = graph.parameters()[2..7].iter().map(|p| p.role.is_trained()).collect();
    assert_eq!(trained, [true, true, false, false, false]);
    let plain = BatchNorm { affine: false, ..BatchNorm::of(6) };
    let two =
        |shape: &[usize]| Sequential::new(shape.to_vec()).layer(BatchNorm::of(4)).layer(plain).flatten().linear(3);
    assert_eq!(output_shape(&two(&[4, 7])).unwrap(), [3].into());
    assert_eq!(train(&two(&[4]), 2).unwrap().group(), 12);
    assert_eq!(train(&cnn(), 2).unwrap().group(), 1);
}

#[test]
fn batch_norm_says_what_it_cannot_do() {
    let of = |norm: BatchNorm| message(&Sequential::new([3]).layer(norm).linear(2));
    let default = BatchNorm::default();
    assert_eq!(of(BatchNorm::of(0)), "layer 1 (batch_norm): expected a group of 1 sample or more, got 0");
    assert_eq!(
        of(BatchNorm { momentum: 1.5, ..default }),
        "layer 1 (batch_norm): expected a momentum from 0 to 1, got 1.5"
    );
    assert_eq!(
        of(BatchNorm { epsilon: -1.0, ..default }),
        "layer 1 (batch_norm): expected an epsilon of 0 or more, got -1"
    );
    assert_eq!(
        message(&Sequential::new(Shape::from([0; 0])).batch_norm()),
        "layer 1 (batch_norm): expected samples of shape [channels, ..], got a number"
    );
    let tokens = Sequential::tokens(6).batch_norm();
    assert_eq!(message(&tokens), "layer 1 (batch_norm): input 0: expected f32, got u32[2, 6]");
}
