//! Which micro-batch sizes are tried, and which one is taken. Sees a device as something that predicts bytes and
//! measures steps, so that curves of any shape and failures at any size can be tested without one.

use super::measured::{End, Measurement, Outcome, Size, Sweep};
use crate::error::{Error, Result};
use crate::fleet::caught;

/// What a doubling of the micro-batch must gain in samples/s to be worth its memory.
pub(super) const GAIN: f64 = 1.05;

/// A device that micro-batch sizes are tried on.
pub trait Bench {
    /// Bytes that the device will have allocated when micro-batches of `rows` rows run on it.
    ///
    /// # Errors
    /// [`Error::Limit`] when a buffer or a kernel is over the adapter's limits.
    fn predict(&mut self, rows: usize) -> Result<u64>;

    /// Allocates for micro-batches of `rows` rows and runs steps: forward, backward, update. Leaves the weights and the
    /// optimizer's state as they were.
    ///
    /// # Errors
    /// When the device lacks the memory, or fails.
    fn measure(&mut self, rows: usize) -> Result<Measurement>;
}

/// What bounds a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Largest micro-batch: the data set's size.
    pub rows: usize,
    /// Smallest micro-batch: the samples that batch norm takes together, else 1. Larger ones are multiples of it.
    pub group: usize,
    /// Most bytes that the device may allocate.
    pub memory: Option<u64>,
    /// Seconds of a single step beyond which larger sizes are not tried.
    pub seconds: f64,
}

/// Tries 1, 2, 4, 8, … groups of rows on `bench` until samples/s stop improving, the memory or the data end, or the
/// device fails. Where the memory ends while it was still improving, one size between the last two is tried, too.
/// Before a knee is believed, the sizes beyond it run once more, and their faster run counts: what disturbs a timing
/// makes it longer. `each` sees every run.
pub fn sweep(bench: &mut dyn Bench, bounds: &Bounds, each: &mut dyn FnMut(&Size)) -> Sweep {
    let mut sizes: Vec<Size> = Vec::new();
    let mut rows = bounds.group.min(bounds.rows);
    let end = loop {
        let (size, failed) = attempt(bench, rows, bounds.memory);
        each(&size);
        let seconds = size.ran().map_or(0.0, |m| m.seconds_per_step);
        sizes.push(size);
        if let Some(end) = failed {
            break end;
        }
        if is_past(&sizes) {
            again(bench, &mut sizes, bounds.memory, each);
            if is_past(&sizes) {
                break End::Knee;
            }
        }
        if rows >= bounds.rows {
            break End::Data;
        }
        if seconds > bounds.seconds {
            break End::Time;
        }
        rows = (2 * rows).min(bounds.rows);
    };
    let between = rows / 2 + rows / 4;
    let improving = knee(&sizes).is_some_and(|k| k == rows / 2);
    if matches!(end, End::Memory | End::Limit) && improving && rows >= bounds.group.saturating_mul(4) {
        let (size, _) = attempt(bench, between, bounds.memory);
        each(&size);
        sizes.insert(sizes.len() - 1, size);
    }
    Sweep { knee: knee(&sizes), sizes, end }
}

/// Predicts, and runs what fits. Why the sweep ends here, where it does.
pub(super) fn attempt(bench: &mut dyn Bench, rows: usize, memory: Option<u64>) -> (Size, Option<End>) {
    let skipped = |predicted_bytes, reason: String, end| {
        (Size { rows, predicted_bytes, outcome: Outcome::Skipped { reason } }, Some(end))
    };
    let predicted = match caught(|| bench.predict(rows)) {
        Ok(predicted) => predicted,
        Err(error) => return skipped(None, error.to_string(), End::Limit),
    };
    if let Some(limit) = memory.filter(|limit| predicted > *limit) {
        return skipped(Some(predicted), format!("over the memory limit of {limit} bytes"), End::Memory);
    }
    let (outcome, end) = match caught(|| bench.measure(rows)) {
        Ok(measurement) => (Outcome::Ran(measurement), None),
        Err(error) => {
            let end = match error {
                Error::OutOfMemory { .. } => End::Memory,
                Error::Limit { .. } => End::Limit,
                _ => End::Failed,
            };
            (Outcome::Failed { reason: error.to_string() }, Some(end))
        }
    };
    (Size { rows, predicted_bytes: Some(predicted), outcome }, end)
}

/// Runs the sizes beyond the knee once more; the faster run stays.
fn again(bench: &mut dyn Bench, sizes: &mut [Size], memory: Option<u64>, each: &mut dyn FnMut(&Size)) {
    let knee = knee(sizes);
    for size in sizes.iter_mut().filter(|s| knee.is_some_and(|k| s.rows > k)) {
        let (second, _) = attempt(bench, size.rows, memory);
        each(&second);
        if second.ran().zip(size.ran()).is_some_and(|(new, old)| new.seconds_per_step < old.seconds_per_step) {
            *size = second;
        }
    }
}

/// Whether two sizes beyond the knee have been run: one alone may have had bad luck.
fn is_past(sizes: &[Size]) -> bool {
    let knee = knee(sizes);
    sizes.iter().filter(|s| s.ran().is_some() && knee.is_some_and(|k| s.rows > k)).count() >= 2
}

/// The smallest size that ran from which on no larger one that ran gains [`GAIN`] a doubling.
pub(super) fn knee(sizes: &[Size]) -> Option<usize> {
    let ran: Vec<(usize, f64)> = sizes.iter().filter_map(|s| Some((s.rows, s.ran()?.samples_per_second))).collect();
    let worth = |(rows, speed): (usize, f64), (more, faster): (usize, f64)| {
        faster >= speed * GAIN.powf((more as f64 / rows as f64).log2())
    };
    let settled = |&&from: &&(usize, f64)| ran.iter().all(|&to| to.0 <= from.0 || !worth(from, to));
    ran.iter().find(settled).map(|(rows, _)| *rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a + b·n seconds a step, bytes that grow with n, and a failure where one is wanted.
    struct Fake {
        speed: fn(usize) -> f64,
        fails: fn(usize) -> Option<Error>,
        measured: Vec<usize>,
    }

    impl Bench for Fake {
        fn predict(&mut self, rows: usize) -> Result<u64> {
            if rows > 4096 {
                return Err(Error::Limit {
                    adapter: "fake".into(),
                    what: "slot 0".into(),
                    needed: 1,
                    limit_name: "max_buffer_size",
                    limit: 0,
                    advice: String::new(),
                });
            }
            Ok(1000 + 10 * rows as u64)
        }

        fn measure(&mut self, rows: usize) -> Result<Measurement> {
            if let Some(error) = (self.fails)(rows) {
                return Err(error);
            }
            self.measured.push(rows);
            let speed = (self.speed)(rows);
            Ok(Measurement {
                allocated_bytes: 1000 + 10 * rows as u64,
                seconds_per_step: rows as f64 / speed,
                samples_per_second: speed,
                steps: 3,
            })
        }
    }

    const FREE: Bounds = Bounds { rows: 1 << 20, group: 1, memory: None, seconds: f64::INFINITY };

    fn run(speed: fn(usize) -> f64, fails: fn(usize) -> Option<Error>, bounds: Bounds) -> Sweep {
        let mut fake = Fake { speed, fails, measured: Vec::new() };
        let mut told = Vec::new();
        let found = sweep(&mut fake, &bounds, &mut |size| told.push(size.rows));
        let rows: Vec<_> = found.sizes.iter().map(|s| s.rows).collect();
        assert!(rows.is_sorted(), "{rows:?}");
        told.sort_unstable();
        told.dedup();
        assert_eq!(told, rows, "every size is told");
        if let Some(knee) = found.knee {
            assert!(fake.measured.contains(&knee), "the size returned is one that ran");
        }
        found
    }

    /// Fixed cost of 10 rows a step: n / (10 + n) of 1000 samples/s.
    fn saturating(n: usize) -> f64 {
        1000.0 * n as f64 / (10.0 + n as f64)
    }

    #[test]
    fn the_knee_is_where_a_doubling_gains_less_than_five_percent() {
        // From n to 2n: (2n / (10 + 2n)) / (n / (10 + n)) = (10 + n) / (5 + n); below 1.05 from n = 95 on.
        let found = run(saturating, |_| None, FREE);
        assert_eq!((found.knee, found.end), (Some(128), End::Knee));
        assert_eq!(found.sizes.last().map(|s| s.rows), Some(512));
    }

    #[test]
    fn one_unlucky_size_does_not_end_the_sweep() {
        let found = run(|n| saturating(n) * if n == 8 { 0.5 } else { 1.0 }, |_| None, FREE);
        assert_eq!(found.knee, Some(128));
    }

    #[test]
    fn a_disturbance_that_passes_does_not_make_a_knee() {
        /// Slow at 8 and 16 rows when they are first run.
        struct Busy(Vec<usize>);
        impl Bench for Busy {
            fn predict(&mut self, rows: usize) -> Result<u64> {
                Ok(rows as u64)
            }
            fn measure(&mut self, rows: usize) -> Result<Measurement> {
                let busy = [8, 16].contains(&rows) && !self.0.contains(&rows);
                self.0.push(rows);
                let speed = saturating(rows) * if busy { 0.3 } else { 1.0 };
                let seconds_per_step = rows as f64 / speed;
                Ok(Measurement { allocated_bytes: rows as u64, seconds_per_step, samples_per_second: speed, steps: 3 })
            }
        }
        let found = sweep(&mut Busy(Vec::new()), &FREE, &mut |_| {});
        assert_eq!((found.knee, found.end), (Some(128), End::Knee));
        assert!((found.at(8).unwrap().samples_per_second - saturating(8)).abs() < 1e-9);
    }

    #[test]
    fn a_flat_curve_has_its_knee_at_one() {
        let found = run(|_| 50.0, |_| None, FREE);
        assert_eq!((found.knee, found.sizes.len()), (Some(1), 3));
        let falling = run(|n| 50.0 / n as f64, |_| None, FREE);
        assert_eq!((falling.knee, falling.sizes.len()), (Some(1), 3));
    }

    #[test]
    fn the_memory_limit_ends_it_and_a_size_between_is_tried() {
        let found = run(|n| n as f64, |_| None, Bounds { memory: Some(1000 + 10 * 50), ..FREE });
        let rows: Vec<_> = found.sizes.iter().map(|s| (s.rows, s.ran().is_some())).collect();
        assert_eq!(rows[4..], [(16, true), (32, true), (48, true), (64, false)]);
        assert_eq!((found.knee, found.end), (Some(48), End::Memory));
        assert_eq!(
            found.sizes.last().unwrap().outcome,
            Outcome::Skipped { reason: "over the memory limit of 1500 bytes".into() }
        );
        let nothing = run(|n| n as f64, |_| None, Bounds { memory: Some(1), ..FREE });
        assert_eq!((nothing.knee, nothing.end, nothing.sizes.len()), (None, End::Memory, 1));
    }

    #[test]
    fn the_data_set_the_limits_and_the_time_end_it() {
        let found = run(|n| n as f64, |_| None, Bounds { rows: 100, ..FREE });
        assert_eq!((found.knee, found.end), (Some(100), End::Data));
        let found = run(|n| n as f64, |_| None, FREE);
        assert_eq!((found.knee, found.end), (Some(4096), End::Limit));
        let found = run(|n| (n as f64).sqrt(), |_| None, Bounds { seconds: 3.5, ..FREE });
        assert_eq!((found.knee, found.end), (Some(16), End::Time));
    }

    #[test]
    fn sizes_are_whole_groups_where_there_are_groups() {
        let bounds = Bounds { group: 12, memory: Some(1000 + 10 * 80), ..FREE };
        let rows: Vec<_> = run(|n| n as f64, |_| None, bounds).sizes.iter().map(|s| s.rows).collect();
        assert_eq!(rows, [12, 24, 48, 72, 96]);
        let found = run(|n| n as f64, |_| None, Bounds { rows: 7, ..bounds });
        assert_eq!((found.knee, found.sizes.len()), (Some(7), 1));
    }

    #[test]
    fn failures_and_panics_end_it_cleanly() {
        let lost = |n| (n == 8).then(|| Error::DeviceLost { adapter: "fake".into(), message: "gone".into() });
        let found = run(|n| n as f64, lost, FREE);
        assert_eq!((found.knee, found.end), (Some(4), End::Failed));
        assert!(matches!(&found.sizes[3].outcome, Outcome::Failed { reason } if reason.contains("gone")));
        let full = |n| {
            (n > 8).then(|| Error::OutOfMemory {
                adapter: "fake".into(),
                buffer: "slot 1".into(),
                bytes: 1,
                in_use: 0,
                limit: None,
            })
        };
        let found = run(|n| n as f64, full, FREE);
        assert_eq!((found.knee, found.end), (Some(8), End::Memory));
        let found = run(|n| n as f64, |n| if n == 4 { panic!("in the driver") } else { None }, FREE);
        assert_eq!((found.knee, found.end), (Some(2), End::Failed));
    }
}
