//! Gradients that are handed out in half the bits: every value against a reference, the sum over steps, and what it
//! costs in accuracy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everygpu::checkpoint::{Snapshot, Store};
use everygpu::data::{self, Batch, Dataset, TensorDataset};
use everygpu::nn::Sequential;
use everygpu::optim::{Optimizer, Schedule};
use everygpu::plan::Buffer;
use everygpu::tensor::{HostTensor, Named};
use everygpu::train::{Compression, Shard, Split, StepKey, Task, TrainOptions, Worker};

use crate::simulated::{Faulty, Kind, Phase};
use crate::training::*;
use crate::workers::fault;

const BOTH: [Compression; 2] = [Compression::F16, Compression::Bf16];

/// `value` to 11 or 8 significant bits, in f64: to nearest, ties to even; f16 has no finer unit than 2⁻²⁴.
fn rounded(compression: Compression, value: f64) -> f64 {
    let (bits, finest, largest) = match compression {
        Compression::F16 => (11, -24, 65504.0),
        _ => (8, -150, (2.0 - 2_f64.powi(-7)) * 2_f64.powi(127)),
    };
    if value == 0.0 {
        return 0.0;
    }
    let unit = 2_f64.powi((value.abs().log2().floor() as i32 + 1 - bits).max(finest));
    let nearest = (value / unit).round_ties_even() * unit;
    if nearest.abs() > largest { f64::INFINITY } else { nearest }
}

/// Gradients that are hard to round, in units of what is packed.
fn awkward() -> Vec<f32> {
    let mut values = vec![0.0, 1.0, 0.1, 3.0e4, 65504.0, 65519.9, 65520.0, 1e5, 1e30, 1e-7, 1.5 / 16_777_216.0];
    // Halfway between two neighbours, and next to that, for both formats.
    for bits in [10, 7] {
        let unit = 2_f32.powi(-bits);
        values.extend([1.0, 2.0].map(|n| 1.0 + (n - 0.5) * unit));
        values.extend([1.0 + 0.5 * unit + f32::EPSILON, 1.0 + 0.5 * unit - f32::EPSILON]);
        values.push(2.0 - 0.5 * unit); // carries into the exponent
    }
    // About the smallest normal numbers.
    for exponent in [-14, -15, -24, -100] {
        let edge = 2_f32.powi(exponent);
        values.extend([edge, edge * (1.0 - f32::EPSILON), edge * (1.0 + f32::EPSILON)]);
    }
    let mut stream = everygpu::rng::Stream::new(1, "gradients");
    values.extend((0..500).map(|i| (stream.normal() * 10_f64.powi(i % 12 - 8)) as f32));
    let negative: Vec<f32> = values.iter().map(|v| -v).collect();
    [values, negative].concat()
}

/// A worker whose gradient is its one sample's input: w = 0 and a target of −½ make 2(wx − t)x = x.
fn echo(values: &[f32]) -> (Task, Arc<Batch>) {
    let task = Task::regression(Sequential::new([values.len()]).linear(1), [1]);
    let inputs = HostTensor::f32([1, values.len()], values.to_vec()).unwrap();
    let data = TensorDataset::regression(inputs, HostTensor::f32([1, 1], vec![-0.5]).unwrap()).unwrap();
    (task, Arc::new(data.gather(&[0]).unwrap()))
}

#[test]
fn every_value_is_rounded_as_the_reference_does_and_the_rest_is_kept() {
    for adapter in adapters() {
        for compression in BOTH {
            let device = open(&adapter, None);
            // A weight of 1 has the scale 16.
            let packed = awkward();
            let values: Vec<f32> = packed.iter().map(|v| v / 16.0).collect();
            let (task, batch) = echo(&values);
            let options = TrainOptions { gradient_compression: compression, ..options(1) };
            let layout = layout(&task, ONE_BUCKET);
            let mut worker = gpu_worker(&device, 2, &task, &options, &layout).unwrap();
            let zeros = vec![0.0; layout.buckets()[0] as usize / 4];
            worker.write(Buffer::Parameter(0), &zeros).unwrap();
            worker.prepare(1).unwrap();
            let placed = layout.parameters().iter().find(|p| p.name.ends_with("weight")).unwrap();
            let first = placed.offset as usize / 4;
            let mut held_back = vec![0.0_f64; packed.len()];
            for step in 0..3 {
                let mut handed_out = Vec::new();
                let mut sink = |_: usize, bytes: &[u8]| {
                    handed_out = bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
                    Ok(())
                };
                let key = StepKey { step, ..StepKey::default() };
                let shard = Shard { batch: batch.clone(), rows: 0..1, key, weight: 1.0, exact: false };
                worker.gradients(&shard, Some(&mut sink)).unwrap();
                let residual = worker.read(Buffer::Residual(0)).unwrap();
                for (i, &value) in packed.iter().enumerate() {
                    let what = format!("{}, {compression:?}, step {step}: {value:e}", adapter.label());
                    // The sum is rounded to f32 before it is packed.
                    let wanted = f64::from((f64::from(value) + held_back[i]) as f32);
                    let expected = rounded(compression, wanted);
                    assert_eq!(f64::from(handed_out[first + i]) * 16.0, expected, "{what}");
                    let rest = if expected.is_finite() { wanted - expected } else { held_back[i] };
                    held_back[i] = f64::from(residual[first + i]);
                    assert_eq!(held_back[i], f64::from(rest as f32), "{what}: residual");
                }
            }
            // Asked for them as they are, it hands them out so, and holds back what it held back.
            let mut exact = Vec::new();
            let mut sink = |_: usize, bytes: &[u8]| {
                exact = bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
                Ok(())
            };
            let shard = Shard { batch: batch.clone(), rows: 0..1, key: StepKey::default(), weight: 1.0, exact: true };
            worker.gradients(&shard, Some(&mut sink)).unwrap();
            assert_eq!(exact[first..][..values.len()], values);
            let residual = worker.read(Buffer::Residual(0)).unwrap();
            assert!(held_back.iter().zip(&residual[first..]).all(|(held, found)| *held == f64::from(*found)));
        }
    }
}

/// A small network for the digits, trained for a few epochs: its weights, and its accuracy on held-out ones.
fn digits(devices: usize, gradient_compression: Compression) -> (Weights, f64) {
    let model = Sequential::new([1, 8, 8]).flatten().linear(32).relu().linear(10);
    let all = data::digits().unwrap();
    let (train, held_out) = data::split(&all, 0.2, 1, true).unwrap();
    let scaled = |data| Arc::new(data::Normalizer::Scale { factor: 0.0625 }.apply(data).unwrap()) as Arc<dyn Dataset>;
    let options = TrainOptions {
        epochs: 5,
        gradient_compression,
        schedule: Schedule::constant(0.003),
        optimizer: Optimizer::adamw(),
        ..options(64)
    };
    let mut trainer = trainer_on(&self::devices(devices), &Task::classification(model), &options);
    let report = trainer.fit(&scaled(train), Some(&scaled(held_out)), &mut Recorder::default()).unwrap();
    (agreed_weights(&mut trainer), report.last.unwrap().validation.unwrap().accuracy().unwrap())
}

/// ‖a − b‖ / ‖b‖.
fn relative(a: &Weights, b: &Weights) -> f64 {
    let norm = |terms: &mut dyn Iterator<Item = f64>| terms.map(|v| v * v).sum::<f64>().sqrt();
    let values = |w: &Weights| w.iter().flat_map(|(_, v)| v).map(|v| f64::from(*v)).collect::<Vec<_>>();
    let (a, b) = (values(a), values(b));
    norm(&mut a.iter().zip(&b).map(|(x, y)| x - y)) / norm(&mut b.iter().copied())
}

#[test]
fn compressed_gradients_train_as_well() {
    let (plain, accuracy) = digits(2, Compression::None);
    for (compression, at_most) in [(Compression::F16, 0.001), (Compression::Bf16, 0.01)] {
        let (weights, compressed) = digits(2, compression);
        let apart = relative(&weights, &plain);
        println!("{compression:?}: accuracy {compressed:.4} instead of {accuracy:.4}, weights {apart:.1e} apart");
        assert!(compressed >= accuracy - 0.01, "{compression:?}: {compressed} instead of {accuracy}");
        assert!(apart > 1e-6, "{compression:?} was not used");
        assert!(apart <= at_most, "{compression:?}: weights {apart:.1e} apart");
    }
    assert!(accuracy > 0.9, "{accuracy}");
    // Alone, nothing passes through the host, and nothing is rounded.
    assert_eq!(digits(1, Compression::Bf16).0, digits(1, Compression::None).0);
}

fn small() -> (Task, Arc<dyn Dataset>) {
    let task = Task::classification(Sequential::new([7]).linear(16).tanh().dropout(0.3).linear(5));
    (task, Arc::new(classes(27, &[7], 5, 1).with_weights(uneven_weights(27)).unwrap()))
}

fn bits(weights: &Weights) -> Vec<u32> {
    weights.iter().flat_map(|(_, v)| v).map(|v| v.to_bits()).collect()
}

#[test]
fn what_was_held_back_is_part_of_the_runs_state() {
    let ((task, data), devices, folder) = (small(), devices(2), tempfile::tempdir().unwrap());
    for compression in BOTH {
        let options = TrainOptions { gradient_compression: compression, deterministic: true, ..options(8) };
        let mut whole = trainer_on(&devices, &task, &options);
        train(&mut whole, &data, 6);
        let snapshot = whole.snapshot().unwrap();
        train(&mut whole, &data, 16);
        let expected = bits(&agreed_weights(&mut whole));
        let path = Store::open(folder.path().join(format!("{compression:?}"))).unwrap().save(&snapshot, None).unwrap();
        let resumed = |snapshot| {
            let mut trainer = trainer_on(&devices, &task, &options);
            trainer.restore(&snapshot).unwrap();
            train(&mut trainer, &data, 16);
            bits(&agreed_weights(&mut trainer))
        };
        let loaded = Store::load(path).unwrap();
        assert!(loaded.optimizer.get("linear_1.weight.residual_1").is_some());
        assert_eq!(resumed(loaded.clone()), expected, "{compression:?}");
        let with = |rename: &dyn Fn(&str) -> Option<String>| {
            let tensors = loaded.optimizer.iter().filter_map(|(name, tensor)| Some((rename(name)?, tensor.clone())));
            Snapshot { optimizer: Named::of(tensors).unwrap(), ..loaded.clone() }
        };
        let without = with(&|name| (!name.contains("residual")).then(|| name.to_owned()));
        assert_ne!(resumed(without), expected, "{compression:?}: residuals do nothing");
        let foreign = with(&|name| Some(name.replace("1.weight.residual", "9.weight.residual")));
        let error = trainer_on(&devices, &task, &options).restore(&foreign).unwrap_err().to_string();
        assert!(error.contains("extra: linear_9.weight.residual_0"), "{error}");
    }
}

/// What rounding took away in an attempt that failed is in the gradients of the next attempt, and must not be added to
/// them: a run that loses a device in its first step is from then on, bit by bit, one that never had it.
#[test]
fn a_step_that_is_computed_again_adds_nothing_twice() {
    let ((task, data), devices) = (small(), devices(3));
    for compression in BOTH {
        for phase in [Phase::Gradients, Phase::MidStream] {
            let options = TrainOptions { gradient_compression: compression, split: Split::Even, ..options(8) };
            let struck = Arc::new(AtomicU64::new(0));
            let counter = struck.clone();
            let wrap = move |index, worker| -> Box<dyn Worker> {
                let faults = if index == 2 { vec![fault(phase, 1, &Kind::Error)] } else { Vec::new() };
                Box::new(Faulty::new(Box::new(worker), faults, counter.clone()))
            };
            let layout = layout(&task, 512);
            let mut faulty = trainer_with(&devices, &task, &options, &layout, wrap).unwrap();
            let recorder = train(&mut faulty, &data, 6);
            assert_eq!((recorder.lost.as_slice(), struck.load(Ordering::SeqCst)), (&[2][..], 1));
            let alone = |_, worker| -> Box<dyn Worker> { Box::new(worker) };
            let mut two = trainer_with(&devices[..2], &task, &options, &layout, alone).unwrap();
            train(&mut two, &data, 6);
            assert_eq!(
                bits(&agreed_weights(&mut faulty)),
                bits(&agreed_weights(&mut two)),
                "{compression:?}, {phase:?}"
            );
        }
    }
}

#[test]
fn a_cross_check_leaves_what_was_held_back() {
    let ((task, data), devices) = (small(), devices(2));
    let run = |cross_check_every| {
        let options = TrainOptions { gradient_compression: Compression::Bf16, cross_check_every, ..options(8) };
        let mut trainer = trainer_on(&devices, &task, &options);
        train(&mut trainer, &data, 10);
        bits(&agreed_weights(&mut trainer))
    };
    assert_eq!(run(1), run(0));
}

/// A gradient that is not finite is seen through the packing, its step is skipped, and nothing of it stays behind.
#[test]
fn a_gradient_that_is_not_finite_skips_the_step() {
    let task = Task::regression(Sequential::new([1]).linear(1), [1]);
    let inputs =
        HostTensor::f32([16, 1], (0..16).map(|i| if i == 5 { 1e30 } else { i as f32 / 16.0 }).collect()).unwrap();
    let data: Arc<dyn Dataset> =
        Arc::new(TensorDataset::regression(inputs, HostTensor::f32([16, 1], vec![1.0; 16]).unwrap()).unwrap());
    for compression in BOTH {
        let options = TrainOptions { epochs: 3, gradient_compression: compression, ..options(4) };
        let options = TrainOptions { split: Split::Weights(vec![1.0, 1.0]), ..options };
        let mut trainer = trainer_on(&devices(2), &task, &options);
        let mut recorder = Recorder::default();
        trainer.fit(&data, None, &mut recorder).unwrap();
        assert_eq!(recorder.steps.iter().filter(|s| !s.applied).count(), 3, "{compression:?}: once an epoch");
        let weights = agreed_weights(&mut trainer);
        assert!(weights.iter().flat_map(|(_, v)| v).all(|v| v.is_finite()), "{compression:?}: {weights:?}");
        let held_back = trainer.snapshot().unwrap().optimizer;
        let small = held_back.iter().flat_map(|(_, t)| t.as_f32().unwrap()).all(|v| v.abs() < 10.0);
        assert!(small, "{compression:?}: {held_back:?}");
    }
}
