//! A device of the machine as what a sweep tries sizes on.

use super::measured::Measurement;
use super::sweep::Bench;
use crate::error::Result;
use crate::scratch::{Scratch, median, repeat};

impl Bench for Scratch {
    fn predict(&mut self, rows: usize) -> Result<u64> {
        self.predicted_bytes(rows)
    }

    fn measure(&mut self, rows: usize) -> Result<Measurement> {
        let mut executable = self.compile(rows)?;
        let allocated_bytes = self.allocated_bytes();
        let batch = self.gather(0..rows)?;
        let seconds = self.seconds();
        let mut step = || self.step(&mut executable, &batch);
        // Drivers compile for real at the first use.
        let timed = step().and_then(|_| repeat(seconds, step));
        self.reset()?;
        let seconds = timed?;
        let steps = seconds.len();
        let seconds_per_step = median(seconds);
        let samples_per_second = rows as f64 / seconds_per_step.max(f64::MIN_POSITIVE);
        Ok(Measurement { allocated_bytes, seconds_per_step, samples_per_second, steps })
    }
}
