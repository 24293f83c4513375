//! The gradient noise scale: how large a batch can be before more samples only make the same gradient more exact.
//!
//! McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training" (2018), appendix A.1: with G the
//! true gradient, Σ the covariance of one sample's gradient and G_B the mean gradient of B samples, E|G_B|² = |G|² +
//! tr(Σ)/B. Two batch sizes give two equations, so these estimators are unbiased:
//!
//! ```text
//! |G|²  =  (B_big·|G_big|² − B_small·|G_small|²) / (B_big − B_small)
//! tr(Σ) =  (|G_small|² − |G_big|²) / (1/B_small − 1/B_big)
//! ```
//!
//! The noise scale is B_simple = tr(Σ)/|G|². A ratio of unbiased estimates is biased, so both are averaged over several
//! batches before they are divided.

use serde::Serialize;

use crate::error::Result;
use crate::scratch::Scratch;

/// What one batch and its parts say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseSample {
    /// Estimate of |G|².
    pub squared_norm: f64,
    /// Estimate of tr(Σ).
    pub trace: f64,
}

impl NoiseSample {
    /// Both estimates from the parts of a batch: for each part its gradient summed over its samples (unnormalised), and
    /// its samples' weights. |G_small|² is the mean over the parts, which keeps it unbiased and makes it less noisy. A
    /// part of unequal weights counts as (Σw)²/Σw² samples (Kish). None when there is no second batch size, or a part
    /// has no weight.
    pub fn new(parts: &[(Vec<f32>, Vec<f64>)]) -> Option<Self> {
        let sums = |weights: &[f64]| (weights.iter().sum::<f64>(), weights.iter().map(|w| w * w).sum::<f64>());
        let mut total = vec![0.0_f64; parts.first()?.0.len()];
        let (mut small, mut inverse_small, mut weight, mut squares) = (0.0, 0.0, 0.0, 0.0);
        for (gradient, weights) in parts {
            let (sum, squared) = sums(weights);
            if sum <= 0.0 {
                return None;
            }
            small += gradient.iter().map(|g| (f64::from(*g) / sum).powi(2)).sum::<f64>();
            inverse_small += squared / (sum * sum);
            total.iter_mut().zip(gradient).for_each(|(t, g)| *t += f64::from(*g));
            weight += sum;
            squares += squared;
        }
        let count = parts.len() as f64;
        let (small, inverse_small) = (small / count, inverse_small / count);
        let big = total.iter().map(|g| (g / weight).powi(2)).sum::<f64>();
        let inverse_big = squares / (weight * weight);
        let difference = inverse_small - inverse_big;
        (difference > 1e-9 * inverse_small).then(|| Self {
            squared_norm: (big * inverse_small - small * inverse_big) / difference,
            trace: (small - big) / difference,
        })
    }
}

/// The gradient noise scale at given weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoiseScale {
    /// B_simple = tr(Σ)/|G|² in samples: the largest batch that is of much use at these weights. None when the estimate
    /// of
    /// |G|² is not above 0: then the gradient drowns in the noise of the samples taken, and the scale is beyond them.
    pub batch: Option<f64>,
    /// Its standard error (jackknife over the batches).
    pub standard_error: Option<f64>,
    /// The mean estimate of |G|².
    pub squared_norm: f64,
    /// The mean estimate of tr(Σ).
    pub trace: f64,
    /// Samples of a part.
    pub small: usize,
    /// Samples of a batch.
    pub big: usize,
    /// Batches.
    pub batches: usize,
    /// Whether the weights are initial ones; the scale grows while a network learns, often tenfold and more.
    pub initial_weights: bool,
}

impl NoiseScale {
    /// From what several batches say; at least two.
    pub fn new(samples: &[NoiseSample], small: usize, big: usize, initial_weights: bool) -> Option<Self> {
        if samples.len() < 2 {
            return None;
        }
        let count = samples.len() as f64;
        let squared: f64 = samples.iter().map(|s| s.squared_norm).sum();
        let trace: f64 = samples.iter().map(|s| s.trace).sum();
        if !(squared.is_finite() && trace.is_finite()) {
            return None;
        }
        let ratio = |trace: f64, squared: f64| (squared > 0.0).then(|| (trace / squared).max(0.0));
        let left_out: Option<Vec<f64>> =
            samples.iter().map(|s| ratio(trace - s.trace, squared - s.squared_norm)).collect();
        let standard_error = left_out.map(|ratios| {
            let mean = ratios.iter().sum::<f64>() / count;
            ((count - 1.0) / count * ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>()).sqrt()
        });
        let batch = ratio(trace, squared);
        Some(Self {
            batch,
            standard_error: batch.and(standard_error),
            squared_norm: squared / count,
            trace: trace / count,
            small,
            big,
            batches: samples.len(),
            initial_weights,
        })
    }
}

/// Parts of a batch.
const PARTS: usize = 16;
/// Most samples of a part: small against the scales that are met, so that the parts differ.
const PART: usize = 16;
/// Most batches.
const BATCHES: usize = 32;

/// Measures the noise scale on `scratch`, over batches of the run's data set of `samples` samples, `seconds` long. None
/// when there are too few samples.
pub(super) fn measure(
    scratch: &mut Scratch,
    samples: usize,
    most: usize,
    seconds: f64,
    initial_weights: bool,
) -> Result<Option<NoiseScale>> {
    let group = scratch.group();
    let parts = PARTS.min(samples / group.saturating_mul(2));
    if parts < 2 {
        return Ok(None);
    }
    // In whole groups, as training takes them; at least one.
    let small = group * (samples / (2 * parts) / group).clamp(1, (PART.min(most) / group).max(1));
    let big = small * parts;
    let mut executable = scratch.compile(small)?;
    let begin = std::time::Instant::now();
    let mut found = Vec::new();
    for batch in 0..BATCHES.min(samples / big) {
        if found.len() >= 2 && begin.elapsed().as_secs_f64() > seconds {
            break;
        }
        let mut gradients = Vec::new();
        for part in 0..parts {
            let start = batch * big + part * small;
            let rows = scratch.gather(start..start + small)?;
            // Rows count on, so that dropout masks differ as the samples do.
            scratch.run(&mut executable, &rows, start)?;
            gradients.push((scratch.gradient()?, scratch.weights(&rows)));
        }
        found.extend(NoiseSample::new(&gradients));
    }
    Ok(NoiseScale::new(&found, small, big, initial_weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    const DIMENSIONS: usize = 40;

    /// Sums of gradients with mean 0.5 in every direction (|G|² = 10) and variance 4 (tr Σ = 160), and the weights.
    fn part(stream: &mut Stream, rows: usize, weight: fn(usize) -> f64) -> (Vec<f32>, Vec<f64>) {
        let weights: Vec<f64> = (0..rows).map(weight).collect();
        let mut sum = vec![0.0; DIMENSIONS];
        for w in &weights {
            sum.iter_mut().for_each(|s| *s += *w as f32 * (0.5 + 2.0 * stream.normal() as f32));
        }
        (sum, weights)
    }

    fn estimate(batches: usize, small: usize, weight: fn(usize) -> f64) -> NoiseScale {
        let mut stream = Stream::new(7, "gradients");
        let mut sample = || {
            let parts: Vec<_> = (0..8).map(|_| part(&mut stream, small, weight)).collect();
            NoiseSample::new(&parts).unwrap()
        };
        let samples: Vec<_> = (0..batches).map(|_| sample()).collect();
        NoiseScale::new(&samples, small, 8 * small, true).unwrap()
    }

    #[test]
    fn both_estimators_find_the_known_values() {
        for small in [1, 4, 32] {
            let found = estimate(400, small, |_| 1.0);
            assert!((found.squared_norm - 10.0).abs() < 0.5, "{small}: |G|² {}", found.squared_norm);
            assert!((found.trace - 160.0).abs() < 4.0, "{small}: tr Σ {}", found.trace);
            let (batch, error) = (found.batch.unwrap(), found.standard_error.unwrap());
            assert!((batch - 16.0).abs() < 4.0 * error && error < 1.0, "{small}: {batch} ± {error}");
        }
    }

    #[test]
    fn weights_that_scale_all_samples_change_nothing() {
        let (one, three) = (estimate(20, 4, |_| 1.0), estimate(20, 4, |_| 3.0));
        assert!((one.batch.unwrap() - three.batch.unwrap()).abs() < 1e-4 * one.batch.unwrap());
    }

    #[test]
    fn unequal_weights_count_as_fewer_samples() {
        let found = estimate(400, 8, |i| if i % 2 == 0 { 1.0 } else { 3.0 });
        assert!((found.squared_norm - 10.0).abs() < 0.5 && (found.trace - 160.0).abs() < 6.0, "{found:?}");
    }

    #[test]
    fn equal_gradients_have_no_noise() {
        let parts = vec![(vec![2.0, 4.0], vec![1.0, 1.0]); 3];
        let sample = NoiseSample::new(&parts).unwrap();
        assert!((sample.squared_norm - 5.0).abs() < 1e-12 && sample.trace.abs() < 1e-12, "{sample:?}");
        assert_eq!(NoiseScale::new(&[sample; 2], 2, 6, true).unwrap().batch, Some(0.0));
    }

    #[test]
    fn a_gradient_that_drowns_in_noise_has_no_scale() {
        let sample = NoiseSample { squared_norm: -1e-3, trace: 5.0 };
        let found = NoiseScale::new(&[sample; 4], 2, 6, false).unwrap();
        assert_eq!((found.batch, found.standard_error), (None, None));
    }

    #[test]
    fn one_size_or_no_weight_says_nothing() {
        assert_eq!(NoiseSample::new(&[]), None);
        assert_eq!(NoiseSample::new(&[(vec![1.0], vec![1.0])]), None);
        assert_eq!(NoiseSample::new(&[(vec![1.0], vec![1.0]), (vec![0.0], vec![0.0])]), None);
        assert_eq!(NoiseScale::new(&[NoiseSample { squared_norm: 1.0, trace: 1.0 }], 1, 2, true), None);
    }
}
