//! The split does not change the result: several devices, however the batch is divided and cut, end with the weights of
//! one device that ran each batch whole; and all of them hold the same bits.

use std::sync::Arc;

use everygpu::data::{Dataset, TensorDataset};
use everygpu::nn::Sequential;
use everygpu::nn::layers::{BatchNorm, Conv2d, Linear};
use everygpu::optim::Optimizer;
use everygpu::train::{MicroBatchSize, Split, Task, TrainOptions};

use crate::training::*;

/// Allowed distance of any weight after 20 steps. Both runs add the same f32 terms in another order: a gradient differs
/// by a few units of 1e-7 of its size, and 20 steps of rate 0.05 with momentum 0.9 (a gain of up to 10) carry that into
/// weights of size 1. Another driver's tanh, exp and fused multiply-adds add as much again. Of what is larger than 1
/// (running means are up to 4), it is that part of its size: rounding is.
const TOLERANCE: f64 = 2e-6;

/// The largest difference between two models' weights, of those larger than 1 as a part of their size.
fn apart(found: &Weights, expected: &Weights) -> f64 {
    let scaled = |weights: &Weights| {
        let part = |name: &str, values: &[f32]| {
            let sizes = expected[name].iter().map(|value| value.abs().max(1.0));
            values.iter().zip(sizes).map(|(value, size)| value / size).collect::<Vec<_>>()
        };
        Weights::of(weights.iter().map(|(name, values)| (name, part(name, values)))).expect("the names are distinct")
    };
    distance(&scaled(found), &scaled(expected))
}
const STEPS: u64 = 20;

fn mlp(dropout: f32) -> Task {
    Task::classification(Sequential::new([7]).linear(16).tanh().dropout(dropout).linear(5))
}

fn cnn() -> Task {
    let model = Sequential::new([1, 6, 6]).conv2d(4, 3, 1).relu().max_pool2d(2).dropout(0.2).flatten().linear(3);
    Task::classification(model)
}

/// 27 samples, so that batches of 8 and 7 end in short ones, with uneven weights.
fn mlp_data(n: usize) -> TensorDataset {
    classes(n, &[7], 5, 1).with_weights(uneven_weights(n)).unwrap()
}

fn cnn_data() -> TensorDataset {
    classes(27, &[1, 6, 6], 3, 2).with_weights(uneven_weights(27)).unwrap()
}

/// AdamW with an epsilon far above a gradient's rounding error: with the usual 1e-8 a gradient that is nearly zero
/// decides with its rounding error alone where the weight goes.
fn adamw() -> Optimizer {
    Optimizer::AdamW { beta1: 0.9, beta2: 0.99, epsilon: 1e-3, weight_decay: 0.1 }
}

struct Case {
    name: &'static str,
    batch: usize,
    accumulate: usize,
    micro_batch: usize,
    weights: &'static [f64],
    /// Rows of a full batch that the devices must get.
    shards: &'static [usize],
}

const fn case(
    name: &'static str,
    batch: usize,
    micro_batch: usize,
    weights: &'static [f64],
    shards: &'static [usize],
) -> Case {
    Case { name, batch, accumulate: 1, micro_batch, weights, shards }
}

const CASES: &[Case] = &[
    case("one idle", 8, 8, &[1.0, 0.0], &[8, 0]),
    case("the lead idle", 8, 8, &[0.0, 1.0], &[0, 8]),
    case("one sample for the first", 8, 1, &[1.0, 7.0], &[1, 7]),
    case("one sample for the last", 8, 3, &[7.0, 1.0], &[7, 1]),
    case("uneven thirds, micro-batches of 3", 8, 3, &[3.0, 3.0, 2.0], &[3, 3, 2]),
    case("an odd batch", 7, 3, &[1.0, 1.0, 1.0], &[3, 2, 2]),
    case("micro-batches larger than a shard", 8, 100, &[1.0, 1.0, 1.0], &[3, 3, 2]),
    case("a batch smaller than the number of devices", 2, 3, &[1.0, 1.0, 1.0], &[1, 1, 0]),
    Case { accumulate: 4, ..case("accumulation", 2, 3, &[3.0, 3.0, 2.0], &[3, 3, 2]) },
];

impl Case {
    fn options(&self, optimizer: Optimizer) -> TrainOptions {
        TrainOptions {
            epochs: 100,
            accumulate: self.accumulate,
            micro_batch: MicroBatchSize::Rows(self.micro_batch),
            split: Split::Weights(self.weights.to_vec()),
            optimizer,
            ..options(self.batch)
        }
    }

    /// One device, the whole batch at once.
    fn alone(&self, optimizer: Optimizer) -> TrainOptions {
        TrainOptions { epochs: 100, optimizer, ..options(self.batch * self.accumulate) }
    }
}

/// Each case of `cases` against one device.
fn compare(task: &Task, data: TensorDataset, cases: &[Case], optimizer: Optimizer) {
    let devices = devices(3);
    let data: Arc<dyn Dataset> = Arc::new(data);
    for case in cases {
        let mut alone = trainer_on(&devices[..1], task, &case.alone(optimizer));
        let expected_record = train(&mut alone, &data, STEPS);
        let expected = agreed_weights(&mut alone);

        let mut trainer = trainer_on(&devices[..case.weights.len()], task, &case.options(optimizer));
        let start = agreed_weights(&mut trainer);
        let record = train(&mut trainer, &data, STEPS);
        let found = agreed_weights(&mut trainer);
        let name = format!("{} ({optimizer:?})", case.name);
        assert!(trainer.coordinator().alive().iter().all(|alive| *alive), "{name}: a device was lost");
        // (Not the first step's: two samples may both have weight 0, and then nobody computes.)
        assert!(record.steps.iter().any(|step| step.shards == case.shards), "{name}: {:?}", record.steps[0].shards);
        assert_eq!(record.steps.len() as u64, STEPS, "{name}");
        assert!(distance(&start, &expected) > 1000.0 * TOLERANCE, "{name}: hardly trained");
        let error = apart(&found, &expected);
        println!("{name}: {error:.1e}");
        assert!(error <= TOLERANCE, "{name}: weights differ by {error:.1e} from one device's");
        for (got, wanted) in record.steps.iter().zip(&expected_record.steps) {
            let close = |a: f64, b: f64, by: f64| (a - b).abs() <= by || (a.is_nan() && b.is_nan());
            let same = got.samples == wanted.samples
                && close(got.accuracy.unwrap_or(f64::NAN), wanted.accuracy.unwrap_or(f64::NAN), 1e-6)
                && close(got.loss, wanted.loss, 1e-5)
                && close(got.gradient_norm, wanted.gradient_norm, 1e-5 * wanted.gradient_norm.max(1.0));
            assert!(same, "{name}: {got:?} instead of {wanted:?}");
        }
    }
}

#[test]
fn any_split_trains_a_perceptron_as_one_device_does() {
    compare(&mlp(0.3), mlp_data(27), CASES, Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.01 });
}

#[test]
fn any_split_trains_a_perceptron_with_adamw_as_one_device_does() {
    compare(&mlp(0.3), mlp_data(27), &CASES[2..5], adamw());
}

#[test]
fn any_split_trains_a_convolutional_network_as_one_device_does() {
    compare(&cnn(), cnn_data(), &CASES[4..6], Optimizer::sgd(0.9));
    compare(&cnn(), cnn_data(), &CASES[2..4], adamw());
}

/// Two samples on three devices: one device has nothing to do, ever, and holds the same weights.
#[test]
fn a_data_set_smaller_than_the_number_of_devices_trains() {
    let one_idle = case("2 samples in batches of 8", 8, 8, &[1.0, 1.0, 1.0], &[1, 1, 0]);
    compare(&mlp(0.3), classes(2, &[7], 5, 1), &[one_idle], Optimizer::sgd(0.9));
}

/// Batch norm over images and, behind the linear layer, over numbers; there with an epsilon far above rounding errors,
/// as for AdamW above: two numbers that are nearly equal would be normalised by their rounding error. The layers in
/// front have no bias: its gradient would be a rounding error, since the mean is taken off.
fn normalised(group: usize) -> Task {
    let (images, numbers) = (BatchNorm::of(group), BatchNorm { momentum: 0.25, epsilon: 1.0, ..BatchNorm::of(group) });
    let model = Sequential::new([1, 6, 6]).layer(Conv2d { bias: false, ..Conv2d::new(4, 3).padding(1) }).layer(images);
    let model = model.relu().max_pool2d(2).dropout(0.2).flatten().layer(Linear { bias: false, ..Linear::new(6) });
    Task::classification(model.layer(numbers).tanh().linear(3))
}

/// Groups of 2: shards and micro-batches are multiples of it.
const IN_PAIRS: &[Case] = &[
    case("one idle", 8, 8, &[1.0, 0.0], &[8, 0]),
    case("uneven thirds, micro-batches of 2", 8, 3, &[3.0, 3.0, 2.0], &[4, 2, 2]),
    case("an odd batch", 7, 3, &[1.0, 1.0, 1.0], &[4, 2, 1]),
    case("micro-batches of 4 in a shard of 6", 8, 5, &[3.0, 1.0], &[6, 2]),
    Case { accumulate: 4, ..case("accumulation", 2, 4, &[1.0, 3.0], &[2, 6]) },
];

/// Groups of 3 and a batch of 8: the last group has 2.
const IN_THREES: &[Case] = &[
    case("the last group is smaller", 8, 4, &[1.0, 1.0, 1.0], &[3, 3, 2]),
    case("the lead idle", 8, 5, &[0.0, 1.0], &[0, 8]),
];

/// Weights and running statistics alike.
#[test]
fn any_split_trains_a_network_with_batch_norm_as_one_device_does() {
    compare(&normalised(2), cnn_data(), IN_PAIRS, Optimizer::sgd(0.9));
    compare(&normalised(3), cnn_data(), IN_THREES, Optimizer::sgd(0.9));
    compare(&normalised(2), cnn_data(), &IN_PAIRS[1..2], adamw());
}

/// 25 samples in windows of 8: the last one holds a single batch of one sample. (Divided by 4 it would be far off.)
#[test]
fn a_last_window_of_one_sample_counts_as_one() {
    let unweighted = classes(25, &[7], 5, 1);
    compare(&mlp(0.3), unweighted, &CASES[8..9], Optimizer::sgd(0.9));
}

/// What the comparisons above must not let pass: each of these changes moves the weights by far more than the
/// tolerance.
#[test]
fn the_comparison_sees_a_wrong_mask_a_wrong_weight_a_lost_sample_and_a_cut_group() {
    let devices = devices(1);
    let run = |task: &Task, data: TensorDataset, options: TrainOptions| {
        let mut trainer = trainer_on(&devices, task, &options);
        let data: Arc<dyn Dataset> = Arc::new(data);
        train(&mut trainer, &data, STEPS);
        agreed_weights(&mut trainer)
    };
    let plain = || TrainOptions { epochs: 100, ..options(8) };
    let right = run(&mlp(0.3), mlp_data(27), plain());
    let mut weights = uneven_weights(27);
    weights[13] *= 1.01;
    let wrong = [
        ("no dropout", run(&mlp(0.0), mlp_data(27), plain())),
        ("another weight", run(&mlp(0.3), classes(27, &[7], 5, 1).with_weights(weights).unwrap(), plain())),
        ("no short batch", run(&mlp(0.3), mlp_data(27), TrainOptions { drop_last: true, ..plain() })),
    ];
    let [pairs, fours] = [2, 4].map(|group| run(&normalised(group), cnn_data(), plain()));
    let pairs = [("other groups", &pairs, &fours)];
    let wrong = wrong.iter().map(|(name, weights)| (*name, &right, weights)).chain(pairs);
    for (name, right, weights) in wrong {
        assert!(distance(right, weights) > 10.0 * TOLERANCE, "{name}: {:.1e}", distance(right, weights));
    }
}
