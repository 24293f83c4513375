//! Losses on devices: their values and gradients are those written down by hand in f64, and the mean is taken over what
//! a step counts as a whole, however it is divided.

use std::sync::Arc;

use everygpu::data::{Batch, Dataset, TensorDataset};
use everygpu::error::Result;
use everygpu::graph::{Graph, Init};
use everygpu::nn::{CrossEntropy, Loss, Mode, Model};
use everygpu::op::{MatMul, Reshape, ValueId};
use everygpu::optim::{Optimizer, Schedule};
use everygpu::tensor::{HostTensor, TensorType};
use everygpu::train::{MicroBatchSize, Split, StepRecord, Task, TrainOptions, Trainer, Unapplied};

use crate::training::*;

/// Inputs (N, T·C), or (N, C) where there are no positions, that are the logits (N, T, C) times a parameter of one
/// element, `scale`: with scale 1 a test chooses the logits, and the gradient is Σ logits·∂loss/∂logits.
struct Logits {
    sample: Vec<usize>,
}

impl Model for Logits {
    fn input(&self) -> TensorType {
        TensorType::f32([self.sample.iter().product::<usize>()])
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        let &[n, features] = graph.shape(x).dims() else { unreachable!("inputs are rows") };
        let scale = graph.parameter("scale", [1, 1], Init::Ones)?;
        let column = graph.apply(Reshape([n * features, 1].into()), &[x])?;
        let scaled = graph.apply(MatMul::default(), &[column, scale])?;
        graph.apply(Reshape([&[n], &self.sample[..]].concat().into()), &[scaled])
    }
}

/// One step of plain gradient descent of rate 1 from scale 1, the samples divided over two devices as `shards` says, in
/// micro-batches of 2: the mean loss and accuracy, and the mean gradient.
fn step(
    loss: Loss,
    sample: &[usize],
    inputs: &[f32],
    targets: HostTensor,
    weights: &[f32],
    shards: [usize; 2],
) -> StepRecord {
    let n = weights.len();
    let split = Split::Weights(shards.map(|rows| rows as f64).to_vec());
    let (optimizer, schedule) = (Optimizer::sgd(0.0), Schedule::constant(1.0));
    let options = TrainOptions { optimizer, schedule, split, micro_batch: MicroBatchSize::Rows(2), ..options(n) };
    let target = TensorType { shape: targets.shape().dims()[1..].to_vec().into(), dtype: targets.dtype() };
    let task = Task { model: Arc::new(Logits { sample: sample.to_vec() }), loss, target };
    let inputs = HostTensor::f32([n, sample.iter().product()], inputs.to_vec()).unwrap();
    let batch = Arc::new(Batch { inputs, targets, weights: weights.to_vec() });
    let mut trainer = trainer_on(&devices(2), &task, &options);
    let record = trainer.step_on(&batch, 1).unwrap();
    assert_eq!(record.shards, shards);
    let scale = agreed_weights(&mut trainer)["scale"][0];
    assert!((f64::from(1.0 - scale).abs() - record.gradient_norm).abs() < 1e-6, "{scale} {record:?}");
    record
}

/// Logits (0, a) with which label 0 has this loss: ln(1 + eᵃ).
fn logits(loss: f64) -> [f32; 2] {
    [0.0, loss.exp_m1().ln() as f32]
}

/// Four tokens with the losses 4, 1, 1 and 1, cut into samples of 1 or 2 tokens: 7/4, not the mean of the devices'
/// means.
#[test]
fn the_loss_is_the_mean_over_tokens() {
    let inputs: Vec<f32> = [4.0, 1.0, 1.0, 1.0].into_iter().flat_map(logits).collect();
    // Label 0 has ∂loss/∂a = p₁ = 1 − exp(−loss).
    let gradient = [4.0_f64, 1.0, 1.0, 1.0].map(|l| -(-l).exp_m1() * f64::from(logits(l)[1])).iter().sum::<f64>() / 4.0;
    for (tokens, shards) in [(1, [1, 3]), (2, [1, 1]), (2, [0, 2])] {
        let n = 4 / tokens;
        let targets = HostTensor::u32([n, tokens], vec![0; 4]).unwrap();
        let record = step(Loss::cross_entropy(), &[tokens, 2], &inputs, targets, &vec![1.0; n], shards);
        assert!((record.loss - 1.75).abs() < 1e-6, "{record:?}");
        assert_eq!(record.accuracy, Some(0.0));
        assert!((record.gradient_norm - gradient).abs() < 1e-6, "{gradient} {record:?}");
    }
}

/// A sample's weight counts once for each of its tokens: (3·(4 + 1) + 1·(1 + 2))/(3·2 + 1·2).
#[test]
fn a_weight_counts_for_each_token() {
    let inputs: Vec<f32> = [4.0, 1.0, 1.0, 2.0, 9.0, 9.0].into_iter().flat_map(logits).collect();
    let targets = HostTensor::u32([3, 2], vec![0; 6]).unwrap();
    let record = step(Loss::cross_entropy(), &[2, 2], &inputs, targets, &[3.0, 1.0, 0.0], [1, 2]);
    assert!((record.loss - 18.0 / 8.0).abs() < 1e-6, "{record:?}");
}

/// Token losses {4} and {1, 1, 1} on two devices, the other tokens of the first sample ignored: 7/4. A mean over each
/// device's tokens, averaged, is 2.5; a mean over samples 7/2.
#[test]
fn ignored_tokens_do_not_count() {
    let ignoring = Loss::CrossEntropy(CrossEntropy { ignore_index: Some(9), ..CrossEntropy::default() });
    let inputs: Vec<f32> = [4.0, 9.0, 9.0, 1.0, 1.0, 1.0].into_iter().flat_map(logits).collect();
    let targets = HostTensor::u32([2, 3], vec![0, 9, 9, 0, 0, 0]).unwrap();
    let record = step(ignoring.clone(), &[3, 2], &inputs, targets, &[1.0, 1.0], [1, 1]);
    assert!((record.loss - 1.75).abs() < 1e-6, "{record:?}");
    // Class 1 has the larger logit everywhere: right for 1 of 4 tokens.
    let targets = HostTensor::u32([2, 3], vec![1, 9, 9, 0, 0, 0]).unwrap();
    assert_eq!(step(ignoring, &[3, 2], &inputs, targets, &[1.0, 1.0], [1, 1]).accuracy, Some(0.25));
}

/// Nothing is left of a batch whose tokens are all ignored: no update.
#[test]
fn a_batch_of_ignored_tokens_is_no_step() {
    let loss = Loss::CrossEntropy(CrossEntropy { ignore_index: Some(0), ..CrossEntropy::default() });
    let task = Task { model: Arc::new(Logits { sample: vec![2, 2] }), loss, target: TensorType::u32([2]) };
    let inputs = HostTensor::f32([2, 4], vec![1.0; 8]).unwrap();
    let targets = HostTensor::u32([2, 2], vec![0; 4]).unwrap();
    let batch = Arc::new(Batch { inputs, targets, weights: vec![1.0, 1.0] });
    let mut trainer = trainer_on(&devices(2), &task, &options(2));
    assert!(!trainer.step_on(&batch, 1).unwrap().applied);
    assert_eq!(agreed_weights(&mut trainer)["scale"], [1.0]);
}

/// Samples of logits (0, 1) in batches of 2, in this order, class 0 ignored.
fn ignoring(labels: &[u32], weights: &[f32]) -> (Trainer, Arc<dyn Dataset>) {
    let loss = Loss::CrossEntropy(CrossEntropy { ignore_index: Some(0), ..CrossEntropy::default() });
    let task = Task { model: Arc::new(Logits { sample: vec![2] }), loss, target: TensorType::u32([]) };
    let inputs = HostTensor::f32([labels.len(), 2], [0.0, 1.0].repeat(labels.len())).unwrap();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let data = TensorDataset::classification(inputs, labels.to_vec(), names).unwrap();
    let options = TrainOptions { epochs: 2, shuffle: false, ..options(2) };
    (trainer_on(&devices(2), &task, &options), Arc::new(data.with_weights(weights.to_vec()).unwrap()))
}

/// A step without a target that counts is skipped and said to be, and its neighbours' losses are those of the epoch.
#[test]
fn a_step_of_which_nothing_counts_is_skipped() {
    let (mut trainer, data) = ignoring(&[1, 0, 0, 0, 0, 1, 1, 1], &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    let mut recorder = Recorder::default();
    let epoch = trainer.fit(&data, None, &mut recorder).unwrap().last.unwrap();
    let unapplied: Vec<_> = recorder.steps[..4].iter().map(|step| step.unapplied).collect();
    assert_eq!(unapplied, [None, Some(Unapplied::NoWeight), None, Some(Unapplied::NoWeight)]);
    assert!(recorder.steps.iter().all(|step| step.applied == step.loss.is_finite()));
    assert_eq!((epoch.skipped, epoch.train.weight), (2, 2.0));
    let mean = (recorder.steps[4].loss + recorder.steps[6].loss) / 2.0;
    assert!((epoch.train.loss() - mean).abs() < 1e-9, "{epoch:?}");
}

/// A whole epoch of such steps, or an evaluation, has no mean: that is an error, not a NaN.
#[test]
fn an_epoch_of_which_nothing_counts_is_an_error() {
    let (mut trainer, data) = ignoring(&[0, 0, 1, 1], &[1.0, 1.0, 0.0, 0.0]);
    let mut recorder = Recorder::default();
    let error = trainer.fit(&data, None, &mut recorder).unwrap_err().to_string();
    assert_eq!(
        error,
        "training stopped: no target counts in any of the 2 steps of epoch 1: all are ignored, or weigh nothing. There is \
         nothing to learn; check the loss's ignore_index and class_weights, and the samples' weights"
    );
    assert_eq!((recorder.steps.len(), recorder.epochs.len()), (2, 0));
    assert_eq!(agreed_weights(&mut trainer)["scale"], [1.0]);
    let error = trainer.evaluate(&data).unwrap_err().to_string();
    assert!(error.contains("no target of the 4 samples to evaluate counts"), "{error}");
}

/// What a step must give: the mean loss, and ‖gradient‖ of the scale, from each target's loss, its derivative by the
/// logits, and how much it counts.
struct Expected {
    losses: f64,
    gradient: f64,
    counts: f64,
}

/// Smoothed, weighted cross-entropy over seven samples of three tokens by PyTorch's formula, in f64.
fn smoothed(inputs: &[f32], targets: &[u32], weights: &[f32], settings: &CrossEntropy) -> Expected {
    let class_weights = settings.class_weights.as_ref().unwrap();
    let classes = class_weights.len();
    let smoothing = f64::from(settings.label_smoothing);
    let mut sums = Expected { losses: 0.0, gradient: 0.0, counts: 0.0 };
    for (token, &target) in targets.iter().enumerate() {
        let weight = f64::from(weights[token * weights.len() / targets.len()]);
        if settings.ignore_index == Some(target) {
            continue;
        }
        let x: Vec<f64> = inputs[token * classes..][..classes].iter().map(|&x| f64::from(x)).collect();
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        let wanted: Vec<f64> = (0..classes)
            .map(|c| {
                let one = f64::from(c == target as usize);
                f64::from(class_weights[c]) * ((1.0 - smoothing) * one + smoothing / classes as f64)
            })
            .collect();
        let total: f64 = wanted.iter().sum();
        for c in 0..classes {
            sums.losses += weight * wanted[c] * (sum.ln() - x[c]);
            sums.gradient += weight * x[c] * (total * x[c].exp() / sum - wanted[c]);
        }
        sums.counts += weight * f64::from(class_weights[target as usize]);
    }
    sums
}

/// The same mean and gradient, however seven samples are divided, with all settings together and weights of 0 among
/// them.
#[test]
fn smoothing_ignored_tokens_and_class_weights_go_together() {
    let settings =
        CrossEntropy { label_smoothing: 0.2, ignore_index: Some(1), class_weights: Some(vec![0.5, 4.0, 1.0, 2.5]) };
    let mut stream = everygpu::rng::Stream::new(4, "losses");
    let inputs: Vec<f32> = (0..7 * 3 * 4).map(|_| stream.normal() as f32).collect();
    let targets: Vec<u32> = (0..7 * 3).map(|_| stream.below(4) as u32).collect();
    let weights = [1.0, 0.5, 0.0, 2.0, 3.0, 0.0, 1.5];
    let Expected { losses, gradient, counts } = smoothed(&inputs, &targets, &weights, &settings);
    for shards in [[7, 0], [4, 3], [1, 6]] {
        let targets = HostTensor::u32([7, 3], targets.clone()).unwrap();
        let record = step(Loss::CrossEntropy(settings.clone()), &[3, 4], &inputs, targets, &weights, shards);
        assert!((record.loss - losses / counts).abs() < 1e-6, "{shards:?}: {record:?}, expected {}", losses / counts);
        let expected = (gradient / counts).abs();
        assert!((record.gradient_norm - expected).abs() < 1e-6, "{shards:?}: {record:?}, expected {expected}");
    }
}

/// Class weights weigh the loss; the accuracy is that of all samples. Pooled over batches of 2, 2 and 1.
#[test]
fn class_weights_leave_the_accuracy_alone() {
    let settings = CrossEntropy { class_weights: Some(vec![1.0, 9.0]), ..CrossEntropy::default() };
    let model = Logits { sample: vec![2] };
    let task = Task { model: Arc::new(model), loss: Loss::CrossEntropy(settings), target: TensorType::u32([]) };
    let inputs: Vec<f32> = [2.0, 1.0, 3.0, 0.5, 0.25].into_iter().flat_map(logits).collect();
    let inputs = HostTensor::f32([5, 2], inputs).unwrap();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let data = TensorDataset::classification(inputs, vec![0, 0, 0, 0, 1], names).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(data);
    let tally = trainer_on(&devices(2), &task, &options(2)).evaluate(&data).unwrap();
    // Label 0 is right where its logit 0 is the larger, so where its loss is below ln 2; the last sample's loss is that
    // of 1.
    assert_eq!((tally.weight, tally.metric_weight, tally.accuracy()), (13.0, 5.0, Some(0.2)));
    let last = -(-(-0.25_f64).exp()).ln_1p();
    assert!((tally.loss() - (6.5 + 9.0 * last) / 13.0).abs() < 1e-6, "{tally:?}");
}

/// Every loss between numbers, and its gradient by a difference quotient of the value written down here, over two
/// devices.
#[test]
fn losses_between_numbers_have_their_values_and_gradients() {
    type Formula = fn(&[f64], &[f64]) -> f64;
    fn mean(x: &[f64], t: &[f64], loss: fn(f64, f64) -> f64) -> f64 {
        x.iter().zip(t).map(|(&x, &t)| loss(x, t)).sum::<f64>() / x.len() as f64
    }
    fn dot(x: &[f64], t: &[f64]) -> f64 {
        x.iter().zip(t).map(|(x, t)| x * t).sum()
    }
    fn log_sum(x: &[f64]) -> f64 {
        x.iter().map(|x| x.exp()).sum::<f64>().ln()
    }
    let cases: [(Loss, Formula); 7] = [
        (Loss::MeanSquaredError, |x, t| mean(x, t, |x, t| (x - t).powi(2))),
        (Loss::MeanAbsoluteError, |x, t| mean(x, t, |x, t| (x - t).abs())),
        (Loss::Huber { delta: 0.5 }, |x, t| {
            mean(x, t, |x, t| if (x - t).abs() <= 0.5 { (x - t).powi(2) / 2.0 } else { 0.5 * ((x - t).abs() - 0.25) })
        }),
        (Loss::BinaryCrossEntropy { pos_weight: vec![2.0] }, |x, t| {
            mean(x, t, |x, t| 2.0 * t * (-x).exp().ln_1p() + (1.0 - t) * x.exp().ln_1p())
        }),
        (Loss::KlDivergence, |x, t| {
            let log_sum = log_sum(x);
            x.iter().zip(t).map(|(x, t)| t * (t.ln() - (x - log_sum))).sum()
        }),
        (Loss::cross_entropy(), |x, t| {
            let log_sum = log_sum(x);
            x.iter().zip(t).map(|(x, t)| t * (log_sum - x)).sum()
        }),
        (Loss::Cosine, |x, t| 1.0 - dot(x, t) / (dot(x, x) * dot(t, t)).sqrt()),
    ];
    let mut stream = everygpu::rng::Stream::new(6, "losses");
    let inputs: Vec<f32> = (0..5 * 3).map(|_| stream.normal() as f32).collect();
    let targets: Vec<f32> = (0..5 * 3).map(|_| (0.1 + 0.3 * stream.uniform()) as f32).collect();
    let weights = [1.0, 0.0, 2.0, 0.5, 3.0];
    for (loss, formula) in cases {
        let at = |scale: f64| -> f64 {
            let rows = inputs.chunks(3).zip(targets.chunks(3)).zip(&weights);
            let of = |row: &[f32], by: f64| row.iter().map(|&v| f64::from(v) * by).collect::<Vec<_>>();
            rows.map(|((x, t), &w)| f64::from(w) * formula(&of(x, scale), &of(t, 1.0))).sum::<f64>() / 6.5
        };
        let gradient = (at(1.0 + 1e-6) - at(1.0 - 1e-6)) / 2e-6;
        for shards in [[5, 0], [2, 3]] {
            let targets = HostTensor::f32([5, 3], targets.clone()).unwrap();
            let record = step(loss.clone(), &[3], &inputs, targets, &weights, shards);
            assert!((record.loss - at(1.0)).abs() < 1e-6, "{loss:?}: {record:?}, expected {}", at(1.0));
            assert!((record.gradient_norm - gradient.abs()).abs() < 1e-6, "{loss:?}: {record:?}, expected {gradient}");
        }
    }
}
