//! When a device that gets no samples is measured again: it may have become fast (a driver that compiled, a game that
//! ended). It is given a small share of some steps, so seldom that this costs about a hundredth of the time at most.

use super::pause::affordable;
use super::profile::Profile;

/// Measurements of a probe, after a first step that is not measured since drivers compile then.
const ENOUGH: u32 = 3;
/// A device is faster than it was when it takes less than this part of the time that was expected of it.
const FASTER: f64 = 0.7;
/// A probe's rows, as a part of the batch.
const SHARE: usize = 16;

/// Rows of a probe, of a batch of `batch`.
pub(super) fn rows(batch: usize) -> usize {
    (batch / SHARE).max(1)
}

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

/// What a measurement says of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    More,
    /// The device has been measured.
    Measured,
    /// The device is as slow as it was.
    AsSlow,
}

impl Probe {
    pub(super) fn new(device: usize, rows: usize, profile: &Profile) -> Self {
        Self { device, rows, expected: profile.predict(rows), steps: 0, spent: 0.0 }
    }

    /// Notes in its `profile` that the device took `seconds` in a step of which the others' part took `others` seconds.
    pub(super) fn measured(&mut self, profile: &mut Profile, seconds: f64, others: f64) -> Verdict {
        self.steps += 1;
        self.spent += (seconds - others).max(0.0);
        match self.steps {
            1 => return Verdict::More,
            2 if self.expected.is_some_and(|expected| seconds > FASTER * expected) => return Verdict::AsSlow,
            // It is faster than it was, or was never measured: what was known of it is outdated.
            2 => profile.observe_anew(self.rows, seconds),
            _ => profile.observe(self.rows, seconds),
        }
        if self.steps <= ENOUGH { Verdict::More } else { Verdict::Measured }
    }

    /// Ends it: whether its device gets samples from now on, and seconds that the others take for a step.
    pub(super) fn end(self, profile: &mut Profile, gets_samples: bool, others: f64) {
        profile.pause.restart(gets_samples, affordable(self.spent, others));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that takes `seconds` for 4 rows.
    fn measured(seconds: f64) -> Profile {
        let mut profile = Profile::default();
        (0..3).for_each(|_| profile.observe(4, seconds));
        profile
    }

    /// Steps until it is measured, where the others take 1 s.
    fn wait(profile: &mut Profile) -> u64 {
        (1..100_000)
            .find(|_| {
                let expected = profile.predict(4);
                profile.pause.is_over(expected, 1.0)
            })
            .unwrap()
    }

    #[test]
    fn a_device_as_slow_as_before_is_asked_ever_less_often() {
        let mut profile = measured(1.5);
        for expected in [200, 400, 800, 1600, 3200, 6400, 6400] {
            assert_eq!(wait(&mut profile), expected);
            let mut probe = Probe::new(1, 4, &profile);
            assert_eq!(probe.measured(&mut profile, 9.0, 9.0), Verdict::More);
            assert_eq!(probe.measured(&mut profile, 1.5, 1.0), Verdict::AsSlow);
            probe.end(&mut profile, false, 1.0);
        }
    }

    #[test]
    fn probes_take_a_hundredth_of_the_time() {
        let mut profile = measured(20.0);
        let (mut taken, mut steps) = (0.0, 0);
        for _ in 0..4 {
            steps += wait(&mut profile);
            let mut probe = Probe::new(1, 4, &profile);
            taken += 2.0 * 19.0;
            assert_eq!(probe.measured(&mut profile, 20.0, 1.0), Verdict::More);
            assert_eq!(probe.measured(&mut profile, 20.0, 1.0), Verdict::AsSlow);
            probe.end(&mut profile, false, 1.0);
            assert!(taken <= 0.01 * steps as f64, "{taken} s in {steps} steps of 1 s");
        }
    }

    #[test]
    fn a_device_that_is_faster_is_measured_anew() {
        for mut profile in [measured(10.0), Profile::default()] {
            let mut probe = Probe::new(1, 4, &profile);
            let verdicts: Vec<Verdict> = (0..4).map(|_| probe.measured(&mut profile, 0.5, 1.0)).collect();
            assert_eq!(verdicts, [Verdict::More, Verdict::More, Verdict::More, Verdict::Measured]);
            assert_eq!(profile.predict(4), Some(0.5));
            probe.end(&mut profile, true, 1.0);
            assert_eq!(wait(&mut profile), 200, "after a success it starts over");
        }
    }

    #[test]
    fn a_device_that_was_never_measured_is_asked_soon() {
        assert_eq!(wait(&mut Profile::default()), 10);
    }
}
