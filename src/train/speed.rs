//! How fast a device is: a line through its own measurements of late.

/// Weight that a measurement keeps when the next one comes.
const MEMORY: f64 = 0.9;
/// Measurements of a device before its model is trusted.
const ENOUGH: u32 = 3;
/// A measurement this far off the model, as a fraction of what was expected, is a surprise; [`ENOUGH`] of them in a row mean
/// that the device is not as fast as it was, and what was measured before is forgotten.
const SURPRISE: f64 = 0.3;

/// Seconds for n samples ≈ a + b·n: a least-squares line over measurements that fade with age.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SpeedModel {
    measurements: u32,
    surprises: u32,
    /// Faded sums of 1, n, n², t, n·t.
    sums: [f64; 5],
}

impl SpeedModel {
    pub(super) fn observe(&mut self, rows: usize, seconds: f64) {
        let n = rows as f64;
        let surprising = self.line().is_some_and(|(a, b)| (seconds - (a + b * n)).abs() > SURPRISE * (a + b * n));
        self.surprises = if surprising { self.surprises + 1 } else { 0 };
        if self.surprises >= ENOUGH {
            *self = Self::default();
        }
        let terms = [1.0, n, n * n, seconds, n * seconds];
        self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = MEMORY * *sum + term);
        self.measurements += 1;
    }

    /// (a, b), or `None` before there are enough measurements. With one size alone there is no telling a from b: then all
    /// is taken as proportional.
    pub(super) fn line(&self) -> Option<(f64, f64)> {
        let [count, n, nn, t, nt] = self.sums;
        if self.measurements < ENOUGH || n <= 0.0 {
            return None;
        }
        let proportional = (0.0, t / n);
        let variance = count * nn - n * n;
        if variance <= 1e-3 * n * n {
            return Some(proportional);
        }
        let b = (count * nt - n * t) / variance;
        let a = (t - b * n) / count;
        Some(if a >= 0.0 && b > 0.0 { (a, b) } else { proportional })
    }
}
