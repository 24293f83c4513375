//! What losses check, how much samples count, and values that PyTorch gives, worked out by hand.

use super::*;
use crate::graph::interpret;
use crate::kernel::Step;
use crate::op::Reference;
use crate::rng::Stream;

fn message(loss: &Loss, output: &[usize], target: &TensorType) -> String {
    loss.check(&Shape::from(output), target).unwrap_err().to_string()
}

/// The statistics' values of one batch, in f64.
fn values(loss: &Loss, output: Reference, target: Reference, target_type: TensorType) -> Vec<Vec<f64>> {
    let mut graph = Graph::new();
    let y = graph.input("output", TensorType::f32(output.shape.clone()));
    let t = graph.input("target", target_type);
    let wanted = loss.values(&mut graph, y, t).unwrap();
    assert_eq!(wanted.len(), statistic_names(loss).len());
    let values = interpret(&graph, &[output, target], &[], &Step::default(), &wanted).unwrap();
    values.into_iter().map(|value| value.data).collect()
}

/// The same for targets of the output's shape.
fn numbers(loss: &Loss, shape: &[usize], output: &[f64], target: &[f64]) -> Vec<Vec<f64>> {
    let of = |data: &[f64]| Reference { shape: shape.into(), data: data.to_vec() };
    values(loss, of(output), of(target), TensorType::f32(shape))
}

fn close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (x, y) in got.iter().zip(expected) {
        assert!((x - y).abs() < 1e-6 * y.abs().max(1.0), "{got:?}, expected {expected:?}");
    }
}

#[test]
fn outputs_and_targets_that_do_not_match_are_refused() {
    let (classes, value) = (TensorType::u32([]), TensorType::f32([1]));
    let cross_entropy = Loss::cross_entropy();
    assert!(cross_entropy.check(&Shape::from([10]), &classes).is_ok());
    assert!(cross_entropy.check(&Shape::from([7, 10]), &TensorType::u32([7])).is_ok());
    assert!(cross_entropy.check(&Shape::from([7, 10]), &TensorType::f32([7, 10])).is_ok());
    assert!(Loss::MeanSquaredError.check(&Shape::from([1]), &value).is_ok());
    for (output, target, expected) in [
        (
            &[4, 4, 10][..],
            &classes,
            "expected the last layer to give one logit a class, [classes], got [4, 4, 10] for a sample; put a flatten and \
             a linear layer at the end",
        ),
        (
            &[10],
            &value,
            "expected class indices (u32) or a probability for each class (f32[10]) as a sample's targets, got f32[1]; for \
             numbers take mse",
        ),
        (
            &[10, 7],
            &TensorType::u32([7]),
            "expected the last layer to give one logit a class, [7, classes], got [10, 7] for a sample",
        ),
    ] {
        assert_eq!(message(&cross_entropy, output, target), format!("loss cross-entropy: {expected}"));
    }
    assert_eq!(
        message(&Loss::MeanSquaredError, &[10], &classes),
        "loss mse: expected numbers (f32) as targets, got u32[]; for classes take cross-entropy"
    );
    assert_eq!(
        message(&Loss::Huber { delta: 1.0 }, &[2], &value),
        "loss huber: expected the last layer to give the target's shape [1], got [2]"
    );
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let (classes, probabilities) = (TensorType::u32([]), TensorType::f32([3]));
    let cross_entropy = |settings| Loss::CrossEntropy(settings);
    let weights = |weights: &[f32]| CrossEntropy { class_weights: Some(weights.to_vec()), ..CrossEntropy::default() };
    for (loss, target, expected) in [
        (cross_entropy(weights(&[1.0; 2])), &classes, "cross-entropy: expected 3 class_weights, one a class, got 2"),
        (
            cross_entropy(weights(&[0.0; 3])),
            &classes,
            "cross-entropy: expected finite class_weights of at least 0, not all 0, got [0.0, 0.0, 0.0]",
        ),
        (
            cross_entropy(CrossEntropy { label_smoothing: 1.0, ..CrossEntropy::default() }),
            &classes,
            "cross-entropy: expected label_smoothing of at least 0 and below 1, got 1",
        ),
        (
            cross_entropy(CrossEntropy { ignore_index: Some(1), ..CrossEntropy::default() }),
            &probabilities,
            "cross-entropy: ignore_index goes with class indices as targets, not with f32[3]",
        ),
        (
            Loss::BinaryCrossEntropy { pos_weight: vec![1.0; 2] },
            &probabilities,
            "bce: expected one pos_weight, or one for each of the last dimension of [3], got 2",
        ),
        (
            Loss::BinaryCrossEntropy { pos_weight: vec![0.0] },
            &probabilities,
            "bce: expected a finite pos_weight above 0, got 0",
        ),
        (Loss::Huber { delta: f32::NAN }, &probabilities, "huber: expected a finite delta above 0, got NaN"),
    ] {
        assert_eq!(message(&loss, &[3], target), format!("loss {expected}"));
    }
    let scalar = TensorType::f32([]);
    assert_eq!(
        message(&Loss::Cosine, &[], &scalar),
        "loss cosine: expected the last layer to give a vector, got [] for a sample"
    );
}

#[test]
fn a_sample_counts_for_what_it_has_targets_of() {
    let tokens = HostTensor::u32([2, 3], vec![0, 1, 1, 2, 0, 0]).unwrap();
    let cross_entropy = Loss::cross_entropy();
    assert_eq!(cross_entropy.counts(&tokens), [3.0, 3.0]);
    assert_eq!(cross_entropy.counts(&HostTensor::u32([3], vec![0; 3]).unwrap()), [1.0; 3]);
    assert_eq!(cross_entropy.counts(&HostTensor::f32([2, 3, 5], vec![0.0; 30]).unwrap()), [3.0, 3.0]);
    let ignoring = CrossEntropy { ignore_index: Some(0), ..CrossEntropy::default() };
    assert_eq!(Loss::CrossEntropy(ignoring.clone()).counts(&tokens), [2.0, 1.0]);
    let weighted = Loss::CrossEntropy(CrossEntropy { class_weights: Some(vec![8.0, 0.5, 2.0]), ..ignoring });
    assert_eq!((weighted.counts(&tokens), weighted.metric_counts(&tokens)), (vec![1.0, 2.0], vec![2.0, 1.0]));
    let numbers = HostTensor::f32([2, 3], vec![0.0; 6]).unwrap();
    assert_eq!(Loss::MeanSquaredError.counts(&numbers), [1.0, 1.0]);
}

/// Logits (0, ln 2, ln 5): log-probabilities −ln 8, −ln 4 and −ln 1.6.
#[test]
fn cross_entropy_is_pytorchs() {
    let ln = f64::ln;
    let logits = || Reference { shape: [1, 3, 3].into(), data: [0.0, ln(2.0), ln(5.0)].repeat(3) };
    let labels = || Reference { shape: [1, 3].into(), data: vec![2.0, 0.0, 1.0] };
    let of = |settings| values(&Loss::CrossEntropy(settings), logits(), labels(), TensorType::u32([1, 3]));
    let losses = [ln(8.0), ln(4.0), ln(1.6)];
    let plain = of(CrossEntropy::default());
    close(&plain[0], &[losses.iter().sum()]);
    assert_eq!(plain[1], [1.0]);
    // Smoothing 0.3 over three classes: 0.7 of the target's, 0.1 of each.
    let smoothing = CrossEntropy { label_smoothing: 0.3, ..CrossEntropy::default() };
    let all = 0.1 * losses.iter().sum::<f64>();
    close(&of(smoothing.clone())[0], &[0.7 * losses.iter().sum::<f64>() + 3.0 * all]);
    // Class 2 ignored (it is the right one), class weights (0.5, 4, 1): PyTorch weights the spread classes too.
    let combined = CrossEntropy { ignore_index: Some(2), class_weights: Some(vec![0.5, 4.0, 1.0]), ..smoothing };
    let spread = 0.1 * (0.5 * losses[0] + 4.0 * losses[1] + losses[2]);
    let expected = 0.7 * (0.5 * losses[0] + 4.0 * losses[1]) + 2.0 * spread;
    assert_eq!(of(combined.clone())[1], [0.0]);
    close(&of(combined)[0], &[expected]);
}

#[test]
fn probabilities_may_be_targets() {
    let ln = f64::ln;
    let logits = [0.0, ln(2.0), ln(5.0)];
    let found = numbers(&Loss::cross_entropy(), &[1, 3], &logits, &[0.25, 0.25, 0.5]);
    close(&found[0], &[0.25 * ln(8.0) + 0.25 * ln(4.0) + 0.5 * ln(1.6)]);
    assert_eq!(found[1], [1.0]);
    // KL takes the targets' entropy off it; a probability of 0 has none.
    let kl = numbers(&Loss::KlDivergence, &[1, 3], &logits, &[0.25, 0.0, 0.75]);
    close(&kl[0], &[0.25 * (ln(0.25) + ln(8.0)) + 0.75 * (ln(0.75) + ln(1.6))]);
    let itself = numbers(&Loss::KlDivergence, &[1, 3], &logits, &[1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0]);
    close(&itself[0], &[0.0]);
}

#[test]
fn losses_between_numbers_are_means_over_a_samples_elements() {
    let (output, target) = ([1.0, 2.0, 0.0, -1.0], [1.5, -1.0, 0.0, 0.0]);
    close(&numbers(&Loss::MeanSquaredError, &[2, 2], &output, &target)[0], &[(0.25 + 9.0) / 2.0, 0.5]);
    close(&numbers(&Loss::MeanAbsoluteError, &[2, 2], &output, &target)[0], &[3.5 / 2.0, 0.5]);
    // δ = 2: 0.5²/2 and 2 (3 − 1); 0 and 1/2.
    close(&numbers(&Loss::Huber { delta: 2.0 }, &[2, 2], &output, &target)[0], &[(0.125 + 4.0) / 2.0, 0.25]);
    close(&numbers(&Loss::MeanAbsoluteError, &[2], &[1.0, 2.0], &[0.0, 0.0])[0], &[1.0, 2.0]);
}

#[test]
fn binary_cross_entropy_is_pytorchs() {
    let softplus = |x: f64| x.exp().ln_1p();
    let (logits, targets) = ([2.0, -1.0, 0.0, 3.0], [1.0, 0.0, 0.25, 0.0]);
    let loss = |weight: f64, x: f64, y: f64| weight * y * softplus(-x) + (1.0 - y) * softplus(x);
    let expected = |weights: [f64; 2]| {
        [0, 2]
            .map(|i| (loss(weights[0], logits[i], targets[i]) + loss(weights[1], logits[i + 1], targets[i + 1])) / 2.0)
    };
    for (pos_weight, weights) in [(vec![1.0], [1.0; 2]), (vec![3.0], [3.0; 2]), (vec![0.5, 2.0], [0.5, 2.0])] {
        let found = numbers(&Loss::BinaryCrossEntropy { pos_weight }, &[2, 2], &logits, &targets);
        close(&found[0], &expected(weights));
        assert_eq!(found[1], [1.0, 0.5]);
    }
}

#[test]
fn cosines_are_of_the_last_dimension() {
    let output = [3.0, 4.0, 1.0, 0.0, -2.0, 0.0, 0.0, 0.0];
    let target = [4.0, 3.0, 0.0, 7.0, 1.0, 0.0, 1.0, 1.0];
    close(&numbers(&Loss::Cosine, &[4, 2], &output, &target)[0], &[1.0 - 0.96, 1.0, 2.0, 1.0]);
    close(&numbers(&Loss::Cosine, &[2, 2, 2], &output, &target)[0], &[(0.04 + 1.0) / 2.0, 1.5]);
}

/// cos = 0.96, 0 and −1, once with ±1 and once with class indices: 1 − cos where they are alike, else max(0, cos −
/// margin).
#[test]
fn pairs_of_vectors_are_alike_or_apart() {
    let pairs = || Reference {
        shape: [6, 2, 2].into(),
        data: [[3.0, 4.0, 4.0, 3.0], [1.0, 0.0, 0.0, 7.0], [-2.0, 0.0, 1.0, 0.0]].concat().repeat(2),
    };
    let loss = Loss::CosineEmbedding { margin: 0.25 };
    let expected = [1.0 - 0.96, 1.0, 2.0, 0.96 - 0.25, 0.0, 0.0];
    for (shape, apart, ty) in [
        (vec![6], 0.0, TensorType::u32([6])),
        (vec![6, 1], -1.0, TensorType::f32([6, 1])),
        (vec![6], -1.0, TensorType::f32([6])),
    ] {
        let labels = Reference { shape: shape.into(), data: [[1.0; 3], [apart; 3]].concat() };
        close(&values(&loss, pairs(), labels, ty)[0], &expected);
    }
    let negative = Loss::CosineEmbedding { margin: -0.5 };
    let labels = Reference { shape: [6, 1].into(), data: vec![-1.0; 6] };
    close(&values(&negative, pairs(), labels, TensorType::f32([6, 1]))[0], &[1.46, 0.5, 0.0, 1.46, 0.5, 0.0]);
}

#[test]
fn pairs_that_are_none_are_refused() {
    let loss = Loss::CosineEmbedding { margin: 0.0 };
    assert!(loss.check(&[2, 5].into(), &loss.target(&[2, 5].into())).is_ok());
    assert_eq!(
        message(&loss, &[10], &TensorType::u32([])),
        "loss cosine-embedding: expected the last layer to give two vectors, [2, D], got [10] for a sample"
    );
    assert_eq!(
        message(&loss, &[2, 5], &TensorType::f32([5])),
        "loss cosine-embedding: expected one class index (0 apart, 1 alike) or one number (-1 apart, 1 alike) as a sample's \
         target, got f32[5]"
    );
    assert_eq!(
        message(&Loss::CosineEmbedding { margin: 1.5 }, &[2, 5], &TensorType::u32([])),
        "loss cosine-embedding: expected a margin from -1 to 1, got 1.5"
    );
}

/// The derivative along a random direction against the difference quotient, for a random cotangent of the losses.
#[test]
fn gradients_agree_with_finite_differences() {
    let settings = CrossEntropy { label_smoothing: 0.2, ignore_index: None, class_weights: Some(vec![0.5, 2.0, 1.0]) };
    for loss in [
        Loss::CrossEntropy(settings),
        Loss::BinaryCrossEntropy { pos_weight: vec![0.5, 2.0, 3.0] },
        Loss::MeanSquaredError,
        Loss::MeanAbsoluteError,
        Loss::Huber { delta: 0.5 },
        Loss::KlDivergence,
        Loss::Cosine,
    ] {
        let mut graph = Graph::new();
        let shape = [4, 2, 3];
        let ty = TensorType::f32(shape);
        let (y, t) = (graph.input("output", ty.clone()), graph.input("target", ty));
        let seed = graph.input("weight", TensorType::f32([4]));
        let losses = loss.values(&mut graph, y, t).unwrap()[0];
        let gradient = graph.differentiate(losses, seed, &[y]).unwrap()[0].unwrap();
        let mut stream = Stream::new(3, "loss");
        let output = Reference::from_fn(shape, |_| stream.normal());
        let direction = output.map(|_| stream.normal());
        let target = output.map(|_| 0.1 + 0.5 * stream.uniform());
        let weights = Reference::from_fn([4], |_| stream.uniform());
        let dot = |a: &Reference, b: &Reference| a.data.iter().zip(&b.data).map(|(a, b)| a * b).sum::<f64>();
        let run = |shift: f64, wanted| {
            let moved = output.zip(&direction, |x, d| x + shift * d);
            let inputs = [moved, target.clone(), weights.clone()];
            interpret(&graph, &inputs, &[], &Step::default(), &[wanted]).unwrap().remove(0)
        };
        let along = |shift| dot(&run(shift, losses), &weights);
        let (analytic, numeric) = (dot(&run(0.0, gradient), &direction), (along(1e-6) - along(-1e-6)) / 2e-6);
        assert!((analytic - numeric).abs() < 1e-6 * numeric.abs().max(1.0), "{loss:?}: {analytic} and {numeric}");
        assert!(numeric.abs() > 1e-3, "{loss:?}: the projection sees the gradient");
    }
}
