//! One device of a run: whether it is there, and all that is lost with it when it fails.

use super::thread::{Thread, WorkerFactory};
use crate::balance::Profile;

/// One device of a run, there or not.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) factory: WorkerFactory,
    pub(super) label: String,
    pub(super) failures: u32,
    /// Threads that have served it. What earlier ones still say does not count.
    pub(super) threads: u32,
    pub(super) presence: Presence,
}

/// Whether a device is there.
#[derive(Debug)]
pub(super) enum Presence {
    Here(Present),
    /// It is being started again.
    Starting(Thread),
    /// It is back and waits to be let in.
    Back(Thread),
    /// It was lost, and is tried again at a step.
    Away {
        retry_at: Option<u64>,
    },
}

/// A device that takes part: what is lost with it.
#[derive(Debug)]
pub(crate) struct Present {
    pub(super) thread: Thread,
    /// What is known of its speed.
    pub(crate) profile: Profile,
    /// It has not followed the updates: it gets the weights when they are needed.
    pub(crate) behind: bool,
    /// Rows of a micro-batch; 0 before it was prepared for any.
    pub(crate) micro_batch: usize,
    /// Its next step is not measured: it runs a size, or updates, for the first time, and drivers compile then.
    pub(crate) untimed: bool,
    /// It got no samples after the last step, which was told.
    pub(crate) idle: bool,
    /// It was told that it has not enough memory to be measured or compared.
    pub(crate) cramped: bool,
}

impl Present {
    pub(super) fn new(thread: Thread, behind: bool) -> Self {
        let profile = Profile::default();
        Self { thread, profile, behind, micro_batch: 0, untimed: true, idle: false, cramped: false }
    }
}

impl Device {
    pub(super) fn new(index: usize, factory: WorkerFactory) -> Self {
        let presence = Presence::Away { retry_at: None };
        Self { factory, label: format!("device {index}"), failures: 0, threads: 0, presence }
    }

    pub(super) fn here(&self) -> Option<&Present> {
        match &self.presence {
            Presence::Here(present) => Some(present),
            _ => None,
        }
    }

    pub(super) fn here_mut(&mut self) -> Option<&mut Present> {
        match &mut self.presence {
            Presence::Here(present) => Some(present),
            _ => None,
        }
    }

    /// Its thread, if it is `number`: others are of the past.
    pub(super) fn thread(&mut self, number: u32) -> Option<&mut Thread> {
        let thread = match &mut self.presence {
            Presence::Here(present) => &mut present.thread,
            Presence::Starting(thread) | Presence::Back(thread) => thread,
            Presence::Away { .. } => return None,
        };
        (thread.number == number).then_some(thread)
    }

    /// It has been lost: it is tried again `after` so many steps (twice as many after each failure), counted from
    /// `step`; 0 for never.
    pub(super) fn lose(&mut self, step: u64, after: u64) {
        let delay = after.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.presence = Presence::Away { retry_at: (delay > 0).then(|| step.saturating_add(delay)) };
    }
}
