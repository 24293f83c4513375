//! How long a device is waited for: by what it is asked to do, and by a watch that stands still while this process
//! does.

use std::collections::{HashSet, VecDeque};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// When a device is given up, and when it is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Endurance {
    /// Longest that a device may take for an answer; `None` for twenty times the longest so far, at least a minute.
    pub hang_timeout: Option<Duration>,
    /// Longest that a device may take to be opened or to compile, which some drivers do only when something runs for
    /// the first time; `None` for twenty times the longest answer so far, at least ten minutes.
    pub compile_timeout: Option<Duration>,
    /// Steps after which a lost device is tried again (twice as many after each failure); 0 for never.
    pub rejoin_after: u64,
}

impl Default for Endurance {
    fn default() -> Self {
        Self { hang_timeout: None, compile_timeout: None, rejoin_after: 200 }
    }
}

/// Patience without a configured one: for an answer, and where something may have to be compiled.
const LEAST: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

/// Patience in multiples of the longest answer so far.
const MULTIPLE: u32 = 20;

/// Waiting is cut into pieces of this length, and none counts for more. So the time does not count in which the whole
/// process does not run: stopped by a debugger or a job's scheduler, in a machine that sleeps.
const PIECE: Duration = Duration::from_millis(50);

/// Sums up the time spent waiting for devices.
#[derive(Debug, Default)]
pub(super) struct Watch {
    waited: Duration,
    /// What did not count.
    stood_still: Duration,
    /// The longest time that a device took for an answer.
    slowest: Duration,
}

impl Watch {
    /// The next event; `None` when there was none for a short while.
    pub(super) fn wait<T>(&mut self, events: &Receiver<T>) -> Option<T> {
        let begin = Instant::now();
        let event = events.recv_timeout(PIECE).ok();
        let elapsed = begin.elapsed();
        self.waited += elapsed.min(PIECE);
        self.stood_still += elapsed.saturating_sub(PIECE);
        event
    }

    /// The time that did not count, so far.
    pub(super) fn stood_still(&self) -> Duration {
        self.stood_still
    }
}

/// What a device may be asked to do, as far as it makes a difference to patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// To be opened, to prepare for samples or for updates: here devices compile.
    Start,
    Gradients,
    Evaluate,
    Update,
    Fingerprints,
    /// To write or read a bucket, which takes no kernel.
    Copy,
}

/// What a device was asked and has not answered, and how long it has been silent.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// In the order in which it is done.
    asked: VecDeque<Work>,
    /// What has been done before, and with micro-batches of which size: nothing is compiled for it any more.
    done: HashSet<(Work, usize)>,
    /// The size now.
    size: usize,
    /// What the watch showed when the device spoke last, or was asked after it had answered all.
    since: Duration,
}

impl Silence {
    /// Of a device that is being opened.
    pub(super) fn of_start(watch: &Watch) -> Self {
        Self { asked: VecDeque::from([Work::Start]), since: watch.waited, ..Self::default() }
    }

    pub(super) fn asked(&mut self, work: Work, watch: &Watch) {
        if self.asked.is_empty() {
            self.since = watch.waited;
        }
        self.asked.push_back(work);
    }

    /// The device has said something: all of an answer, or a part of it.
    pub(super) fn heard(&mut self, is_all: bool, watch: &mut Watch) {
        let silent = watch.waited.saturating_sub(self.since);
        self.since = watch.waited;
        if !self.may_compile() {
            watch.slowest = watch.slowest.max(silent);
        }
        if let Some(work) = is_all.then(|| self.asked.pop_front()).flatten() {
            self.done.insert(self.of_size(work));
        }
    }

    /// The device runs micro-batches of this size from now on.
    pub(super) fn prepared(&mut self, size: usize) {
        self.size = size;
    }

    /// `work` with the size that it is compiled for, where there is one.
    fn of_size(&self, work: Work) -> (Work, usize) {
        let depends = matches!(work, Work::Gradients | Work::Evaluate);
        (work, if depends { self.size } else { 0 })
    }

    /// Whether the device may have to compile for what it is at.
    fn may_compile(&self) -> bool {
        match self.asked.front() {
            Some(Work::Start) => true,
            Some(Work::Copy) | None => false,
            Some(&work) => !self.done.contains(&self.of_size(work)),
        }
    }

    /// The patience with the device, when it has been silent for longer.
    pub(super) fn exceeds(&self, watch: &Watch, endurance: &Endurance) -> Option<Duration> {
        let configured = [endurance.hang_timeout, endurance.compile_timeout];
        let patience = |kind: usize| configured[kind].unwrap_or_else(|| LEAST[kind].max(watch.slowest * MULTIPLE));
        let patience = match self.asked.front() {
            Some(Work::Start) => patience(1),
            _ if self.may_compile() => patience(0).max(patience(1)),
            _ => patience(0),
        };
        (watch.waited.saturating_sub(self.since) >= patience).then_some(patience)
    }
}
