//! What goes around an optimizer on the devices: groups of parameters, the moving average of the weights.

use everygpu::kernel::Target;
use everygpu::optim::{Group, Groups, Optimizer, UpdatePlan, UpdateRule};
use everygpu::plan::Buffer;

use crate::optimizers::{Bench, STEPS, TOLERANCE, adamw, error_of, placed, small};
use crate::training::*;

/// A frozen parameter between others, a smaller learning rate, decay of a vector, none of a matrix.
fn groups() -> Groups {
    let list = vec![
        Group { frozen: true, ..Group::new("p1") },
        Group { frozen: true, ..Group::new("p5") },
        Group { lr_scale: 0.25, weight_decay: Some(0.0), ..Group::new("p2") },
        Group { weight_decay: Some(0.3), ..Group::new("p?") },
    ];
    Groups { decay_rank_1: false, list }
}

#[test]
fn groups_have_their_own_rate_and_decay_or_stay() {
    for adapter in adapters() {
        let device = open(&adapter, None);
        for optimizer in [Optimizer::sgd(0.9), adamw(), Optimizer::adagrad(), Optimizer::lion(), Optimizer::lamb()] {
            let rule = UpdateRule { groups: groups(), clip_norm: Some(3.0), ..optimizer.into() };
            let error = error_of(&device, &rule, &rule, &small());
            assert!(error <= 1.0, "{}: {optimizer:?} is off by {error:.1} × the tolerance", adapter.label());
        }
    }
    let rule = UpdateRule { groups: groups(), ..adamw().into() };
    let ungrouped = UpdateRule { groups: Groups { decay_rank_1: true, ..groups() }, ..rule.clone() };
    assert!(error_of(&devices(1)[0], &rule, &ungrouped, &small()) <= 1.0, "every parameter is in a group");
}

/// The weights stay to the bit, and not even a gradient that is not finite matters to the others.
#[test]
fn frozen_parameters_are_not_touched_and_no_part_of_the_norm() {
    for adapter in adapters() {
        let rule = UpdateRule { groups: groups(), ..adamw().into() };
        let mut bench = Bench::new(&open(&adapter, None), rule, small());
        let (start, mut sums) = (bench.random("start", 1.0), bench.random("gradient", 1.0));
        bench.write(Buffer::Parameter, &start);
        sums.get_mut("p1").unwrap()[3] = f32::NAN;
        sums.get_mut("p5").unwrap()[1023] = f32::INFINITY;
        let outcome = bench.update(&sums, 0.1, 1.0, 1);
        assert_eq!(outcome.applied, 1);
        let others = sums.iter().enumerate().filter(|(i, _)| ![1, 5].contains(i));
        let norm = others.flat_map(|(_, (_, v))| v).map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        assert!((f64::from(outcome.norm) / norm - 1.0).abs() < 1e-6, "{outcome:?}, {norm}");
        for (i, ((_, before), (_, after))) in start.iter().zip(bench.read(Buffer::Parameter)).enumerate() {
            assert_eq!(*before == after, [1, 5].contains(&i), "p{i}");
            assert!(after.iter().all(|w| w.is_finite()), "p{i}");
        }
    }
}

/// The norm's chunks are those of the parameters, in their order: it is the same to the bit in one bucket and in many,
/// and with it the clipped update.
#[test]
fn the_norm_does_not_depend_on_how_buckets_are_cut() {
    let shapes: [&[usize]; 8] = [&[131, 101], &[20_000], &[33, 29], &[512], &[1], &[9_000], &[7, 65], &[2, 1024]];
    let frozen = vec![Group { frozen: true, ..Group::new("p2") }];
    for adapter in adapters() {
        let device = open(&adapter, None);
        for list in [vec![], frozen.clone()] {
            let groups = Groups { decay_rank_1: false, list };
            let rule = UpdateRule { groups, clip_norm: Some(0.5), ..Optimizer::sgd(0.9).into() };
            let updated = |max_binding| {
                let layout = placed(&shapes, max_binding);
                let mut bench = Bench::new(&device, rule.clone(), layout.clone());
                let start = bench.random("start", 1.0);
                bench.write(Buffer::Parameter, &start);
                let gradients = (1..=STEPS).map(|t| bench.random(&format!("gradient {t}"), 1.0)).collect::<Vec<_>>();
                let outcomes =
                    gradients.iter().zip(1..).map(|(sums, t)| bench.update(sums, 0.1, 3.0, t).norm.to_bits());
                (layout.buckets().len(), outcomes.collect::<Vec<_>>(), bench.state())
            };
            let (whole, cut) = (updated(ONE_BUCKET), updated(20_000 * 4 + 256));
            assert!(whole.0 == 1 && cut.0 >= 3, "{} and {} buckets", whole.0, cut.0);
            assert_eq!(whole.1, cut.1, "{}: the norms", adapter.label());
            assert_eq!(whole.2, cut.2, "{}: weights and moments", adapter.label());
        }
    }
}

#[test]
fn a_group_without_parameters_is_an_error() {
    let rule = UpdateRule { groups: Groups { list: vec![Group::new("q*")], ..Groups::default() }, ..adamw().into() };
    let error = UpdatePlan::new(&rule, &small(), &Target::default()).unwrap_err().to_string();
    assert!(error.contains("\"q*\" matches no parameter; the nearest names are: p"), "{error}");
}

/// Each step it moves towards the weights as they are on the device.
#[test]
fn the_moving_average_follows_the_weights() {
    for adapter in adapters() {
        for optimizer in [Optimizer::sgd(0.0), adamw(), Optimizer::lamb()] {
            let rule = UpdateRule { ema_decay: Some(0.9), groups: groups(), ..optimizer.into() };
            let moment = rule.average().unwrap();
            let mut bench = Bench::new(&open(&adapter, None), rule, small());
            let start = bench.random("start", 1.0);
            bench.write(Buffer::Parameter, &start);
            bench.write(|bucket| Buffer::State { moment, bucket }, &start);
            let mut expected: Vec<Vec<f64>> =
                start.iter().map(|(_, w)| w.iter().map(|&w| f64::from(w)).collect()).collect();
            for t in 1..=STEPS {
                let sums = bench.random(&format!("gradient {t}"), 1.0);
                bench.update(&sums, 0.1, 1.0, t);
                let weights = bench.read(Buffer::Parameter);
                for (average, (_, weights)) in expected.iter_mut().zip(&weights) {
                    let pairs = average.iter_mut().zip(weights);
                    pairs.for_each(|(a, &w)| *a = 0.9 * *a + (1.0 - 0.9) * f64::from(w));
                }
            }
            let found = bench.read(|bucket| Buffer::State { moment, bucket });
            let errors = found.iter().zip(&expected).map(|((_, found), average)| TOLERANCE.worst(found, average));
            let error = errors.fold(0.0, f64::max);
            assert!(error <= 1.0, "{}: off by {error:.1} × the tolerance", adapter.label());
        }
    }
}
