//! What the device's own clock says of its compute passes, where the adapter has one: when each began and ended, in
//! what unit, and when that was on the host's clock. The values are read with a read-back that happens anyway, so that
//! a step waits for nothing more, and nothing is allocated in it.
//!
//! **Two clocks.** The device counts from a moment of its own. No pass begins before the host has recorded it, and none
//! ends after the host has seen its result: each read-back bounds the distance between the clocks from both sides. The
//! distance starts as the first upper bound and is moved only where a later bound contradicts it, so that it also
//! follows clocks that drift apart.

use std::time::{Duration, Instant};

use super::device::{Device, Memory};
use super::program::{Prepared, record};
use crate::error::Result;
use crate::plan::{QUERY_BYTES, Storage};
use crate::trace;

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// What a trace calls it.
    pub(super) name: &'static str,
    /// Samples that it works on, where it does.
    pub(super) rows: Option<usize>,
}

/// A compute pass whose times have not been read yet.
#[derive(Debug, Clone, Copy)]
struct Pass {
    work: Work,
    /// When the host recorded it, in seconds since the clock was made.
    recorded: f64,
}

/// The device's own clock: its compute passes, and when each ran on the host's clock.
#[derive(Debug)]
pub(super) struct Clock {
    queries: wgpu::QuerySet,
    resolved: Memory,
    /// Where the values stand in the report.
    offset: u64,
    passes: Vec<Pass>,
    /// There were more passes than queries.
    incomplete: bool,
    made: Instant,
    reading: Reading,
    kernels: Option<f64>,
}

impl Clock {
    /// Makes the queries and the buffer that `storage` lists for them; `None` where it lists none or the device has no
    /// clock.
    pub(super) fn new(device: &Device, storage: &Storage) -> Result<Option<Self>> {
        let Some(what) = storage.queries.as_ref().filter(|_| device.has_clock()) else { return Ok(None) };
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = device.allocate(what, usage, false)?;
        let count = (what.bytes / QUERY_BYTES) as u32;
        let queries = device.inner.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("clock"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        device.check()?;
        let passes = Vec::with_capacity(count as usize / 2);
        let (spans, seconds) = (Vec::with_capacity(passes.capacity()), Vec::with_capacity(passes.capacity()));
        let period = f64::from(device.queue.get_timestamp_period()) * 1e-9;
        Ok(Some(Self {
            queries,
            resolved,
            offset: storage.report.bytes - what.bytes,
            passes,
            incomplete: false,
            made: Instant::now(),
            reading: Reading { period, zero: None, distance: None, spans, seconds },
            kernels: None,
        }))
    }

    /// Forgets passes that were not read.
    pub(super) fn restart(&mut self) {
        self.passes.clear();
        self.incomplete = false;
    }

    /// The queries for a pass that is being recorded; `None` when there are no more.
    pub(super) fn pass(&mut self, work: Work) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        if self.passes.len() == self.passes.capacity() {
            self.incomplete = true;
            return None;
        }
        let first = 2 * self.passes.len() as u32;
        self.passes.push(Pass { work, recorded: self.made.elapsed().as_secs_f64() });
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Records the copy of all passes' times into `report`.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, report: &wgpu::Buffer) {
        let count = 2 * self.passes.len() as u32;
        if count > 0 {
            encoder.resolve_query_set(&self.queries, 0..count, &self.resolved.buffer, 0);
            let bytes = u64::from(count) * QUERY_BYTES;
            encoder.copy_buffer_to_buffer(&self.resolved.buffer, 0, report, self.offset, bytes);
        }
    }

    /// Takes the times out of what the report of the device `label` holds, which the host has just got.
    pub(super) fn read(&mut self, report: &[u8], label: &str) {
        let seen = self.made.elapsed().as_secs_f64();
        let bytes = &report[self.offset as usize..][..2 * self.passes.len() * QUERY_BYTES as usize];
        let ticks = bytes.chunks_exact(QUERY_BYTES as usize).map(bytemuck::pod_read_unaligned);
        self.kernels = self.reading.take(ticks, self.passes.iter().map(|p| p.recorded), seen);
        if self.kernels.is_some() {
            for (pass, &(begin, end)) in self.passes.iter().zip(&self.reading.spans) {
                let start = self.made + Duration::from_secs_f64(begin.max(0.0));
                let length = Duration::from_secs_f64(end - begin);
                trace::note(|| format!("{label} kernels"), pass.work.name, start, length, pass.work.rows);
            }
        }
        if self.incomplete {
            self.kernels = None;
        }
        self.restart();
    }

    /// Passes that it can time between two read-backs.
    pub(super) fn most(&self) -> usize {
        self.passes.capacity()
    }

    /// Seconds in each of the passes that were read last, in order; `None` where [`Clock::kernels`] has none.
    pub(super) fn each(&self) -> Option<&[f64]> {
        self.kernels.map(|_| &self.reading.seconds[..])
    }

    /// Seconds in the passes that were read last; `None` where the clock gave no sense, or there were more passes than
    /// it has queries for.
    pub(super) fn kernels(&self) -> Option<f64> {
        self.kernels
    }
}

/// Records `dispatches`, where there are any, into one compute pass, which `clock` times as `work`.
pub(super) fn record_timed(
    encoder: &mut wgpu::CommandEncoder,
    uniform: Option<&wgpu::BindGroup>,
    dispatches: &[Prepared],
    clock: &mut Option<Clock>,
    work: Work,
) {
    if !dispatches.is_empty() {
        record(encoder, uniform, dispatches, clock.as_mut().and_then(|clock| clock.pass(work)));
    }
}

/// Makes seconds of the host out of ticks of the device.
#[derive(Debug)]
struct Reading {
    /// Seconds a tick.
    period: f64,
    /// The first tick that was ever read.
    zero: Option<u64>,
    /// What is to be added to seconds since `zero` on the device's clock to get the host's.
    distance: Option<f64>,
    /// Begin and end of each pass, on the host's clock.
    spans: Vec<(f64, f64)>,
    /// Seconds in each pass; time that is in two of them counts for the first.
    seconds: Vec<f64>,
}

/// How much more time than the host's a device's clock may count before it is not believed.
const FAST: f64 = 1.01;

impl Reading {
    /// Reads `ticks`, two a pass, of passes that were `recorded` when the host's clock said so, and `seen` to be done.
    /// Seconds in passes (time that is in two of them counts once); `None`, and no spans, when the ticks make no sense:
    /// some drivers give zeros, and a counter of few bits starts again from zero.
    fn take(
        &mut self,
        mut ticks: impl Iterator<Item = u64>,
        recorded: impl Iterator<Item = f64> + Clone,
        seen: f64,
    ) -> Option<f64> {
        self.spans.clear();
        self.seconds.clear();
        let mut last = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        while let (Some(begin), Some(end)) = (ticks.next(), ticks.next()) {
            let zero = *self.zero.get_or_insert(begin);
            let seconds = |tick: u64| tick.wrapping_sub(zero).cast_signed() as f64 * self.period;
            let span = (seconds(begin), seconds(end));
            if begin == 0 || end == 0 || span.0 > span.1 || span.0 < last.0 {
                return self.nonsense();
            }
            self.seconds.push((span.1 - span.0.max(last.1)).max(0.0));
            last = (span.0, span.1.max(last.1));
            self.spans.push(span);
        }
        let (first, host) = (self.spans.first()?.0, seen - recorded.clone().next()?);
        if last.1 <= first || last.1 - first > FAST * host {
            return self.nonsense();
        }
        let latest = seen - last.1;
        let begins = self.spans.iter().map(|span| span.0);
        let earliest = recorded.zip(begins).map(|(recorded, begin)| recorded - begin).fold(f64::NEG_INFINITY, f64::max);
        let distance = self.distance.unwrap_or(latest).max(earliest).min(latest);
        self.distance = Some(distance);
        self.spans.iter_mut().for_each(|(begin, end)| (*begin, *end) = (*begin + distance, *end + distance));
        Some(self.seconds.iter().sum())
    }

    /// Starts anew: what counts is the distance to what comes, not to what made no sense.
    fn nonsense(&mut self) -> Option<f64> {
        self.spans.clear();
        (self.zero, self.distance) = (None, None);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of a tick a second.
    fn reading() -> Reading {
        Reading { period: 1.0, zero: None, distance: None, spans: Vec::new(), seconds: Vec::new() }
    }

    fn take(reading: &mut Reading, ticks: &[u64], recorded: &[f64], seen: f64) -> Option<f64> {
        reading.take(ticks.iter().copied(), recorded.iter().copied(), seen)
    }

    #[test]
    fn time_in_two_passes_counts_once() {
        let mut reading = reading();
        assert_eq!(take(&mut reading, &[100, 104, 106, 109], &[0.0, 0.0], 10.0), Some(7.0));
        assert_eq!(take(&mut reading, &[110, 114, 112, 116, 113, 115], &[10.0; 3], 20.0), Some(6.0));
        assert_eq!(reading.seconds, [4.0, 2.0, 0.0]);
    }

    #[test]
    fn passes_lie_between_their_recording_and_the_sight_of_their_result() {
        let mut reading = reading();
        take(&mut reading, &[100, 104], &[0.0], 10.0);
        assert_eq!(reading.spans, [(6.0, 10.0)], "as late as may be");
        // What is known now: a pass that ended at 114 was seen to be done at 18.
        take(&mut reading, &[110, 114], &[11.0], 18.0);
        assert_eq!(reading.spans, [(14.0, 18.0)]);
        take(&mut reading, &[120, 124], &[21.0], 40.0);
        assert_eq!(reading.spans, [(24.0, 28.0)], "nothing contradicts the distance");
        // The device's clock has fallen behind: a pass cannot begin before it was recorded.
        take(&mut reading, &[130, 132, 136, 140], &[50.0, 58.0], 70.0);
        assert_eq!(reading.spans, [(52.0, 54.0), (58.0, 62.0)]);
    }

    #[test]
    fn ticks_that_make_no_sense_are_no_measurement() {
        for (what, ticks) in [
            ("zeros", [0, 0, 0, 0]),
            ("an end before the begin", [100, 90, 110, 120]),
            ("a pass before the one that comes before it", [100, 110, 90, 120]),
            ("a counter that started again", [u64::MAX >> 28, u64::MAX >> 28, 3, 5]),
            ("more time than went by", [100, 110, 120, 170]),
            ("no time", [100, 100, 100, 100]),
        ] {
            let mut reading = reading();
            assert_eq!(take(&mut reading, &ticks, &[0.0, 0.0], 60.0), None, "{what}");
            assert!(reading.spans.is_empty(), "{what}");
            assert_eq!(take(&mut reading, &[200, 204], &[60.0], 70.0), Some(4.0), "after {what}");
            assert_eq!(reading.spans, [(66.0, 70.0)], "after {what}");
        }
        assert_eq!(take(&mut reading(), &[], &[], 1.0), None, "no passes");
        let mut wrapping = reading();
        assert_eq!(take(&mut wrapping, &[u64::MAX - 1, 2], &[0.0], 10.0), Some(4.0), "a counter of 64 bits");
    }
}
