//! What follows from the measurements: micro-batch, global batch, and the learning rate that goes with it. Advice with
//! its reasons; nothing here changes a setting.

use serde::Serialize;

use super::measured::Sweep;
use super::noise::NoiseScale;
use crate::optim::At;
use crate::train::TrainOptions;

/// Updates an epoch below which a batch is too large for its data set.
const STEPS_PER_EPOCH: usize = 20;
/// Sizes whose speed is this close to the best one's are as good, and smaller is better.
const AS_GOOD: f64 = 0.98;

/// A changed learning rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LearningRate {
    /// `optimizer.lr` as it is.
    pub now: f64,
    /// What goes with the recommended batch.
    pub rate: f64,
    /// `schedule.warmup` that goes with it, where the rule asks for one.
    pub warmup: Option<u64>,
    /// The rule and where it is from.
    pub reason: String,
}

/// What follows from the measurements: micro-batch, batch and the learning rate that goes with it, with the reasons. It
/// changes no setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// `train.micro_batch`: a size that ran on every adapter that takes part, the fastest of these in sum.
    pub micro_batch: usize,
    /// Samples of an update.
    pub batch: usize,
    /// Samples of an update as the run has it.
    pub batch_now: usize,
    /// Where the recommended batch comes from.
    pub reasons: Vec<String>,
    /// The learning rate that goes with it; none where the batch stays.
    pub learning_rate: Option<LearningRate>,
    /// What else should be known.
    pub warnings: Vec<String>,
}

/// The facts that advice is given from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// One an adapter.
    pub sweeps: &'a [&'a Sweep],
    /// Logical devices on each.
    pub replicas: usize,
    /// Samples of the training set.
    pub samples: usize,
    /// The gradient noise scale, where it was measured.
    pub noise: Option<&'a NoiseScale>,
    /// The run's settings.
    pub options: &'a TrainOptions,
}

impl Advice {
    /// Advice from `facts`; none when no size ran on any adapter.
    pub(crate) fn new(facts: &Facts<'_>) -> Option<Self> {
        let micro_batch = shared(facts.sweeps)?;
        let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
        let knees: Vec<usize> = facts.sweeps.iter().filter_map(|s| s.knee).collect();
        let full = knees.iter().sum::<usize>() * facts.replicas;
        let devices = knees.len() * facts.replicas;
        reasons.push(match devices {
            1 => format!("{full} samples keep the device at its full speed"),
            _ => format!("{full} samples, the sum of the knees, keep all {devices} devices at their full speed"),
        });
        let batch_now = facts.options.window();
        // Beyond the knees a batch runs as several micro-batches, as fast.
        let mut batch = full.max(batch_now);
        if batch_now > full {
            reasons.push(format!("the run's batch of {batch_now} does so, too"));
        }
        let limit = (facts.samples / STEPS_PER_EPOCH).max(1);
        if batch > limit {
            batch = power_below(limit);
            reasons.push(format!(
                "{} samples allow no more than {batch} if an epoch is to have {STEPS_PER_EPOCH} updates or more",
                facts.samples
            ));
        }
        if let Some(scale) = facts.noise {
            batch = by_noise(scale, batch, &mut reasons, &mut warnings);
        }
        let steps = facts.samples.div_ceil(batch_now);
        if steps < STEPS_PER_EPOCH {
            warnings.push(format!(
                "the run's batch of {batch_now} leaves {steps} updates an epoch; fewer than {STEPS_PER_EPOCH} learn slowly"
            ));
        }
        let learning_rate = (batch != batch_now).then(|| learning_rate(facts, batch));
        Some(Self { micro_batch, batch, batch_now, reasons, learning_rate, warnings })
    }
}

/// The size that ran on all adapters on which any did, and is the fastest in sum; the smallest of those that are as
/// good.
fn shared(sweeps: &[&Sweep]) -> Option<usize> {
    let taking_part: Vec<&&Sweep> = sweeps.iter().filter(|s| s.knee.is_some()).collect();
    let speed = |rows: usize| taking_part.iter().map(|s| Some(s.at(rows)?.samples_per_second)).sum::<Option<f64>>();
    let common: Vec<(usize, f64)> =
        taking_part.first()?.sizes.iter().filter_map(|size| Some((size.rows, speed(size.rows)?))).collect();
    // One adapter alone: its knee, whatever gains there are beyond.
    if let [only] = taking_part[..] {
        return only.knee;
    }
    let most = taking_part.iter().filter_map(|s| s.knee).max()?;
    let common: Vec<_> = common.into_iter().filter(|(rows, _)| *rows <= most).collect();
    let best = common.iter().map(|c| c.1).max_by(f64::total_cmp)?;
    common.iter().find(|c| c.1 >= AS_GOOD * best).map(|c| c.0)
}

/// The batch as the noise scale lets it be. At initial weights the scale is at its smallest: there it warns only.
fn by_noise(scale: &NoiseScale, batch: usize, reasons: &mut Vec<String>, warnings: &mut Vec<String>) -> usize {
    let Some(size) = scale.batch.map(|s| s.max(1.0)) else {
        let seen = scale.big * scale.batches;
        reasons.push(format!("the gradient noise scale is beyond what {seen} samples show: it sets no limit"));
        return batch;
    };
    if batch as f64 <= size {
        reasons.push(format!("the gradient noise scale of {size:.0} is not below it"));
        return batch;
    }
    if scale.initial_weights {
        warnings.push(format!(
            "a batch of {batch} is above the gradient noise scale at the initial weights ({size:.1}): the first steps gain \
             little from so many samples. The scale grows during training; measure again later with --resume RUN_DIR"
        ));
        return batch;
    }
    let limited = power_below(size as usize);
    reasons.push(format!(
        "the gradient noise scale at these weights, {size:.0}, makes {limited} the largest useful batch"
    ));
    limited
}

fn learning_rate(facts: &Facts<'_>, batch: usize) -> LearningRate {
    let options = facts.options;
    let (now, before) = (options.schedule.base, options.window());
    let factor = batch as f64 / before as f64;
    match options.optimizer.is_adaptive() {
        false => {
            let steps = facts.samples.div_ceil(batch) as u64;
            // 5 of 90 epochs there; a short run gives the same share.
            let warmup = (steps * 5).min((steps * options.epochs).div_ceil(18));
            let steps_per_epoch = facts.samples.div_ceil(before) as u64;
            let at = At { total: steps_per_epoch * options.epochs, steps_per_epoch, ..At::default() };
            let as_now = options.schedule.warmup.steps(&at) as f64 / factor;
            let warmup = (factor > 1.0).then(|| warmup.max(as_now as u64));
            let ramp = if factor > 1.0 { ", with a linear warm-up" } else { "" };
            let reason = format!(
                "SGD: in proportion to the batch{ramp} (Goyal et al. 2017): {before} → {batch} samples is a factor of \
                 {factor:.3}. It holds up to the gradient noise scale"
            );
            LearningRate { now, rate: three_digits(now * factor), warmup, reason }
        }
        true => {
            let root = factor.sqrt();
            let reason = format!(
                "Adam-like: with the square root of the batch (Malladi et al. 2022): {before} → {batch} samples is a factor \
                 of {root:.3}. It holds up to the gradient noise scale"
            );
            LearningRate { now, rate: three_digits(now * root), warmup: None, reason }
        }
    }
}

/// The largest power of two that is not above `n` (at least 1).
fn power_below(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::super::measured::{End, Measurement, Outcome, Size};
    use super::*;
    use crate::optim::{Optimizer, Schedule};

    fn sweep(speeds: &[(usize, f64)], knee: usize) -> Sweep {
        let size = |&(rows, speed): &(usize, f64)| {
            let measured =
                Measurement { allocated_bytes: 0, seconds_per_step: 1.0, samples_per_second: speed, steps: 1 };
            Size { rows, predicted_bytes: None, outcome: Outcome::Ran(measured) }
        };
        Sweep { sizes: speeds.iter().map(size).collect(), knee: Some(knee), end: End::Knee }
    }

    fn noise(batch: f64, initial_weights: bool) -> NoiseScale {
        NoiseScale {
            batch: Some(batch),
            standard_error: None,
            squared_norm: 1.0,
            trace: batch,
            small: 1,
            big: 2,
            batches: 3,
            initial_weights,
        }
    }

    fn options(optimizer: Optimizer) -> TrainOptions {
        TrainOptions { batch: 64, epochs: 90, optimizer, schedule: Schedule::constant(0.1), ..TrainOptions::default() }
    }

    #[test]
    fn the_batch_is_the_sum_of_the_knees_within_the_data_and_the_noise() {
        let (a, b) = (sweep(&[(1, 1.0), (32, 20.0)], 32), sweep(&[(1, 1.0), (8, 3.0), (32, 3.1)], 8));
        let options = options(Optimizer::adamw());
        let facts = Facts { sweeps: &[&a, &b], replicas: 2, samples: 10_000, noise: None, options: &options };
        let batch = |facts: Facts<'_>| Advice::new(&facts).unwrap().batch;
        assert_eq!(batch(facts), 80);
        assert_eq!(batch(Facts { replicas: 1, ..facts }), 64, "40 are enough: what the run has stays");
        assert_eq!(batch(Facts { samples: 1000, ..facts }), 32);
        assert_eq!(batch(Facts { samples: 3, ..facts }), 1);
        assert_eq!(batch(Facts { noise: Some(&noise(50.0, false)), ..facts }), 32);
        assert_eq!(batch(Facts { noise: Some(&noise(500.0, false)), ..facts }), 80);
        let initial = noise(50.0, true);
        let advice = Advice::new(&Facts { noise: Some(&initial), ..facts }).unwrap();
        assert_eq!((advice.batch, advice.micro_batch), (80, 32));
        assert!(advice.warnings[0].contains("initial weights (50.0)"), "{:?}", advice.warnings);
        let few = Advice::new(&Facts { samples: 640, ..facts }).unwrap();
        assert!(few.warnings[0].contains("leaves 10 updates an epoch"), "{:?}", few.warnings);
    }

    #[test]
    fn the_micro_batch_ran_on_every_adapter_that_takes_part() {
        let fast = sweep(&[(1, 10.0), (8, 60.0), (64, 100.0)], 64);
        let slow = sweep(&[(1, 5.0), (8, 9.0)], 8);
        assert_eq!(shared(&[&fast, &slow]), Some(8), "64 did not run on the slow one");
        let slow = sweep(&[(1, 5.0), (8, 9.0), (64, 9.0)], 8);
        assert_eq!(shared(&[&fast, &slow]), Some(64));
        let broken = Sweep { sizes: vec![], knee: None, end: End::Failed };
        assert_eq!(shared(&[&broken, &fast]), Some(64));
        assert_eq!(shared(&[&broken]), None);
    }

    #[test]
    fn the_learning_rate_goes_by_the_optimizer() {
        let a = sweep(&[(256, 1.0)], 256);
        let rate = |optimizer| {
            let options = options(optimizer);
            let facts = Facts { sweeps: &[&a], replicas: 1, samples: 25_600, noise: None, options: &options };
            Advice::new(&facts).unwrap().learning_rate.unwrap()
        };
        let sgd = rate(Optimizer::sgd(0.9));
        assert_eq!((sgd.now, sgd.rate, sgd.warmup), (0.1, 0.4, Some(500)));
        assert!(sgd.reason.contains("Goyal"));
        for optimizer in Optimizer::variants().into_iter().filter(|o| !matches!(o, Optimizer::Sgd { .. })) {
            let adaptive = rate(optimizer);
            assert_eq!((adaptive.rate, adaptive.warmup), (0.2, None), "{optimizer:?}");
            assert!(adaptive.reason.contains("Malladi"));
        }
    }

    #[test]
    fn a_batch_that_stays_keeps_its_learning_rate() {
        let a = sweep(&[(64, 1.0)], 64);
        let options = options(Optimizer::adamw());
        let facts = Facts { sweeps: &[&a], replicas: 1, samples: 25_600, noise: None, options: &options };
        assert_eq!(Advice::new(&facts).unwrap().learning_rate, None);
    }
}
