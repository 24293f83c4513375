//! When a device that gets no samples is measured again: it may have become fast (a driver that compiled, a game that ended).
//! It is given a small share of some steps, so seldom that this costs about a hundredth of the time at most.

/// Steps without samples after which a device is measured again, at the earliest.
const EARLIEST: u64 = 200;
/// The same of a device that was never measured: a batch has too few groups for all.
const UNKNOWN: u64 = 10;
/// Doublings of that after probes in vain.
const DOUBLINGS: u32 = 5;
/// Part of all steps' time that probes may take.
const COST: f64 = 0.01;
/// Measurements of a probe, after a first step that is not measured since drivers compile then.
const ENOUGH: u32 = 3;
/// A device is faster than it was when it takes less than this part of the time that was expected of it.
const FASTER: f64 = 0.7;
/// A probe's rows, as a part of the batch.
const SHARE: usize = 16;

/// A probe under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Probe {
    pub(super) device: usize,
    pub(super) rows: usize,
    /// Seconds that it took for them when it was last measured, as far as known.
    expected: Option<f64>,
    steps: u32,
    /// Seconds by which it made steps longer.
    spent: f64,
}

/// What to do with a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Forget it; the probe goes on.
    WarmUp,
    /// The first one of a device that is faster than it was or was never measured: what was known of it is outdated.
    Anew,
    /// One more.
    More,
    /// The last one.
    Last,
    /// The device is as slow as it was; the probe has ended.
    InVain,
}

#[derive(Debug, Clone, Default)]
struct Idle {
    steps: u64,
    /// Steps after which it is measured.
    wait: u64,
    failures: u32,
}

/// The devices without samples, and the probe under way.
#[derive(Debug, Clone)]
pub(super) struct Probes {
    idle: Vec<Idle>,
    active: Option<Probe>,
}

impl Probes {
    pub(super) fn new(devices: usize) -> Self {
        Self { idle: vec![Idle::default(); devices], active: None }
    }

    /// Rows of a probe, of a batch of `batch`.
    pub(super) fn rows(batch: usize) -> usize {
        (batch / SHARE).max(1)
    }

    /// The probe under way.
    pub(super) fn active(&self) -> Option<&Probe> {
        self.active.as_ref()
    }

    /// A device had samples in a step of its own right.
    pub(super) fn busy(&mut self, device: usize) {
        self.idle[device] = Idle::default();
    }

    /// A device had none in a step that took the others `others` seconds; it is `expected` to take so many for a probe.
    /// Whether it is its turn to be measured, which [`Probes::start`] then begins.
    pub(super) fn idle(&mut self, device: usize, expected: Option<f64>, others: f64) -> bool {
        let idle = &mut self.idle[device];
        if idle.wait == 0 {
            // The first step and one measurement are what a probe in vain takes.
            let cost = 2.0 * (expected.unwrap_or(0.0) - others).max(0.0);
            let earliest = if expected.is_some() { EARLIEST } else { UNKNOWN };
            idle.wait = earliest.max(affordable(cost, others));
        }
        idle.steps += 1;
        idle.steps >= idle.wait && self.active.is_none()
    }

    pub(super) fn start(&mut self, device: usize, rows: usize, expected: Option<f64>) {
        self.active = Some(Probe { device, rows, expected, steps: 0, spent: 0.0 });
    }

    /// The device was lost.
    pub(super) fn abandon(&mut self) {
        self.active = None;
    }

    /// Notes that the probed device took `seconds` in a step of which the others' part took `others` seconds.
    pub(super) fn measured(&mut self, seconds: f64, others: f64) -> Verdict {
        let Some(probe) = &mut self.active else { return Verdict::WarmUp };
        probe.steps += 1;
        probe.spent += (seconds - others).max(0.0);
        match probe.steps {
            1 => Verdict::WarmUp,
            2 if probe.expected.is_some_and(|expected| seconds > FASTER * expected) => {
                self.end(false, others);
                Verdict::InVain
            }
            2 => Verdict::Anew,
            steps if steps <= ENOUGH => Verdict::More,
            _ => Verdict::Last,
        }
    }

    /// Ends the probe: whether its device gets samples from now on, and seconds that the others take for a step.
    pub(super) fn end(&mut self, gets_samples: bool, others: f64) {
        if let Some(probe) = self.active.take() {
            self.wait(probe.device, gets_samples, affordable(probe.spent, others));
        }
    }

    /// The device had not the memory to be measured.
    pub(super) fn refused(&mut self, device: usize) {
        self.wait(device, false, 0);
    }

    /// Sets when a device is measured the next time: after `least` steps, or later.
    fn wait(&mut self, device: usize, gets_samples: bool, least: u64) {
        let idle = &mut self.idle[device];
        let failures = if gets_samples { 0 } else { (idle.failures + 1).min(DOUBLINGS) };
        *idle = Idle { steps: 0, wait: (EARLIEST << failures).max(least), failures };
    }
}

/// Steps of `step` seconds after which `cost` seconds are [`COST`] of the time.
fn affordable(cost: f64, step: f64) -> u64 {
    if step > 0.0 { (cost / (COST * step)).ceil() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until device 1 is measured, when it is expected to take `expected` and the others take 1.
    fn wait(probes: &mut Probes, expected: f64) -> u64 {
        (1..100_000).find(|_| probes.idle(1, Some(expected), 1.0)).unwrap()
    }

    #[test]
    fn a_device_as_slow_as_before_is_asked_ever_less_often() {
        let mut probes = Probes::new(2);
        let mut expected_waits = [200, 400, 800, 1600, 3200, 6400, 6400].into_iter();
        for _ in 0..7 {
            assert_eq!(wait(&mut probes, 1.5), expected_waits.next().unwrap());
            probes.start(1, 4, Some(1.5));
            assert_eq!(probes.measured(9.0, 9.0), Verdict::WarmUp);
            assert_eq!(probes.measured(1.5, 1.0), Verdict::InVain);
            assert_eq!(probes.active(), None);
        }
    }

    #[test]
    fn probes_take_a_hundredth_of_the_time() {
        let mut probes = Probes::new(2);
        let (mut taken, mut steps) = (0.0, 0);
        for _ in 0..4 {
            steps += wait(&mut probes, 20.0);
            probes.start(1, 4, Some(20.0));
            while probes.active().is_some() {
                probes.measured(20.0, 1.0);
                taken += 19.0;
            }
            assert!(taken <= 0.01 * steps as f64, "{taken} s in {steps} steps of 1 s");
        }
    }

    #[test]
    fn a_device_that_is_faster_is_measured_anew() {
        let mut probes = Probes::new(2);
        for expected in [Some(10.0), None] {
            probes.start(1, 4, expected);
            let verdicts: Vec<Verdict> = (0..4).map(|_| probes.measured(0.5, 1.0)).collect();
            assert_eq!(verdicts, [Verdict::WarmUp, Verdict::Anew, Verdict::More, Verdict::Last]);
            probes.end(true, 1.0);
        }
        assert_eq!(wait(&mut probes, 1.0), 200, "after a success it starts over");
    }
}
