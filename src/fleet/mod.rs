//! The devices of a run, seen as threads that take jobs and answer: who is there, what each holds, who failed or hangs,
//! who comes back. Knows nothing of what a batch means, or of epochs.
//!
//! One thread a device runs a [`Worker`], the seam behind which real devices, simulated ones and injected faults look
//! alike. What happens to devices is one list, in the order in which it happened, which the trainer tells its observer.

mod change;
mod device;
mod gpu_worker;
mod job;
mod micro_batch;
mod patience;
mod thread;
mod worker;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

pub(crate) use change::Change;
pub use change::LostDevice;
pub(crate) use device::Present;
pub use gpu_worker::{GpuWorker, Graphs};
pub(crate) use job::{Answer, Job};
pub use micro_batch::MicroBatchSize;
pub use patience::Endurance;
pub use thread::WorkerFactory;
pub(crate) use thread::{Event, Pool, caught};
pub use worker::{Shard, ShardReport, StepKey, Worker};

use self::device::{Device, Presence};
use self::patience::Watch;
use self::thread::{Envelope, Thread};
use crate::balance::Profile;
use crate::error::{Error, Result};

/// The devices of a run, as threads that take jobs and answer.
#[derive(Debug)]
pub(crate) struct Fleet {
    devices: Vec<Device>,
    sender: Sender<Envelope>,
    events: Receiver<Envelope>,
    pool: Pool,
    ticket: u64,
    endurance: Endurance,
    watch: Watch,
    /// The step that is being taken, which retries are counted in.
    step: u64,
    /// Counts comings and goings.
    generation: u64,
    /// What is to be told, in the order in which it happened.
    changes: Vec<Change>,
}

impl Fleet {
    /// Starts a thread for each worker and waits until all exist or have failed.
    ///
    /// # Errors
    /// When none starts.
    pub(crate) fn start(factories: Vec<WorkerFactory>, endurance: Endurance) -> Result<Self> {
        let (sender, events) = channel();
        let devices = factories.into_iter().enumerate().map(|(index, factory)| Device::new(index, factory));
        let mut fleet = Self {
            devices: devices.collect(),
            sender,
            events,
            pool: Pool::default(),
            ticket: 0,
            endurance,
            watch: Watch::default(),
            step: 0,
            generation: 0,
            changes: Vec::new(),
        };
        let threads: Vec<_> = (0..fleet.len()).map(|device| fleet.spawn(device)).collect();
        let mut failed = Vec::new();
        for (device, thread) in threads.into_iter().enumerate() {
            match thread {
                Ok(thread) => fleet.devices[device].presence = Presence::Here(Present::new(thread, false)),
                Err(error) => failed.push((device, error)),
            }
        }
        failed.into_iter().try_for_each(|(device, error)| fleet.fail(device, error))?;
        let mut starting: Vec<usize> = fleet.here().collect();
        while !starting.is_empty() {
            let (device, event) = fleet.next(0, &starting)?;
            if let Some(Event::Ready(label)) = event {
                fleet.devices[device].label = label;
            }
            starting.retain(|&other| other != device);
        }
        Ok(fleet)
    }

    fn spawn(&mut self, device: usize) -> Result<Thread> {
        let Device { factory, threads, .. } = &mut self.devices[device];
        *threads += 1;
        Thread::spawn((device, *threads), factory.clone(), self.sender.clone(), self.pool.clone(), &self.watch)
    }

    pub(crate) fn len(&self) -> usize {
        self.devices.len()
    }

    pub(crate) fn label(&self, device: usize) -> &str {
        &self.devices[device].label
    }

    /// The device, if it is there.
    pub(crate) fn get(&self, device: usize) -> Option<&Present> {
        self.devices.get(device)?.here()
    }

    /// The device, if it is there.
    pub(crate) fn get_mut(&mut self, device: usize) -> Option<&mut Present> {
        self.devices.get_mut(device)?.here_mut()
    }

    /// The devices that are there.
    pub(crate) fn here(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.devices.len()).filter(|&device| self.devices[device].here().is_some())
    }

    /// What is known of the devices that are there.
    pub(crate) fn profiles(&self) -> Vec<Option<&Profile>> {
        self.devices.iter().map(|device| device.here().map(|present| &present.profile)).collect()
    }

    /// A number that changes whenever a device comes or goes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Time in which this process did not run while it waited, so far.
    pub(crate) fn stood_still(&self) -> Duration {
        self.watch.stood_still()
    }

    /// Notes something to be told.
    pub(crate) fn note(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// What is to be told, in order, since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// A number for a new job, or for several whose answers belong together.
    pub(crate) fn ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    /// Queues a job for a device that is there. That it has failed is told by its event, not here.
    pub(crate) fn send(&mut self, device: usize, ticket: u64, job: Job) {
        if let Some(present) = self.devices[device].here_mut() {
            present.thread.send(ticket, job, &self.watch);
        }
    }

    /// The next event of job `ticket`, which the devices `waiting` owe; `None` of a device that is lost, whichever it
    /// is. Leftovers of earlier, abandoned jobs are dropped.
    ///
    /// # Errors
    /// When no device is left.
    pub(crate) fn next(&mut self, ticket: u64, waiting: &[usize]) -> Result<(usize, Option<Event>)> {
        loop {
            let Some(Envelope { device, thread, ticket: of, event }) = self.watch.wait(&self.events) else {
                if let Some(device) = self.give_up(waiting)? {
                    return Ok((device, None));
                }
                continue;
            };
            let current = self.devices[device].thread(thread);
            let is_current = current.is_some();
            if let Some(thread) = current {
                thread.heard(&event, &mut self.watch);
            }
            let here = is_current && self.devices[device].here().is_some();
            let failure = match event {
                Event::Bucket { values, .. } if !here || of != ticket => {
                    self.pool.give(values);
                    continue;
                }
                _ if !is_current => continue,
                Event::Ready(label) if !here => {
                    self.welcome(device, label);
                    continue;
                }
                Event::Gone => self.error(device, "its thread ended without a word"),
                Event::Failed(error) => error,
                event if here && of == ticket => return Ok((device, Some(event))),
                _ => continue,
            };
            if here {
                self.fail(device, failure)?;
                return Ok((device, None));
            }
            self.lose(device, &failure);
        }
    }

    /// A device that is being started again is back, under this name.
    fn welcome(&mut self, device: usize, label: String) {
        let device = &mut self.devices[device];
        device.label = label;
        let presence = std::mem::replace(&mut device.presence, Presence::Away { retry_at: None });
        device.presence = match presence {
            Presence::Starting(thread) => Presence::Back(thread),
            other => other,
        };
    }

    fn error(&self, device: usize, message: impl Into<String>) -> Error {
        Error::Device { adapter: self.label(device).to_owned(), message: message.into() }
    }

    /// Takes out a device of `waiting` that has been silent for too long. Its thread is left to itself: it ends when
    /// its driver lets go of it, if ever, and what it still says does not count.
    fn give_up(&mut self, waiting: &[usize]) -> Result<Option<usize>> {
        if !waiting.iter().any(|&device| self.get(device).is_some()) {
            return Err(Error::Training("no device answers".into()));
        }
        let given_up = |&device: &usize| {
            let patience = self.get(device)?.thread.silence.exceeds(&self.watch, &self.endurance)?;
            Some((device, patience))
        };
        let Some((device, patience)) = waiting.iter().find_map(given_up) else { return Ok(None) };
        self.fail(device, self.error(device, format!("did not answer within {patience:.1?} and is taken for hung")))?;
        Ok(Some(device))
    }

    /// Takes `device` out, and notes it to be told.
    ///
    /// # Errors
    /// When it was the last one.
    pub(crate) fn fail(&mut self, device: usize, error: Error) -> Result<()> {
        self.lose(device, &error);
        self.generation += 1;
        if self.devices.len() == 1 {
            return Err(error);
        }
        let label = self.label(device).to_owned();
        if self.here().next().is_none() {
            let message = format!("no device is left; the last one, {label}, failed: {error}");
            return Err(Error::Training(message));
        }
        log::info!("{label} stopped working and is left out from now on: {error}");
        self.note(Change::Lost(LostDevice { device, label, error }));
        Ok(())
    }

    fn lose(&mut self, device: usize, error: &Error) {
        log::debug!("{} is not there: {error}", self.label(device));
        self.devices[device].lose(self.step, self.endurance.rejoin_after);
    }

    /// Has those of `devices` that are there do a job each: their answers, in order of the devices, without those of
    /// devices that are lost over it.
    ///
    /// # Errors
    /// When no device is left.
    pub(crate) fn ask(&mut self, devices: &[usize], job: impl Fn(usize) -> Job) -> Result<Vec<(usize, Answer)>> {
        let ticket = self.ticket();
        let mut waiting: Vec<usize> = devices.iter().copied().filter(|&device| self.get(device).is_some()).collect();
        waiting.iter().for_each(|&device| self.send(device, ticket, job(device)));
        let mut answers = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let (device, event) = self.next(ticket, &waiting)?;
            if let Some(Event::Answer(answer)) = event {
                answers.push((device, answer));
            }
            waiting.retain(|&other| other != device);
        }
        answers.sort_by_key(|(device, _)| *device);
        Ok(answers)
    }

    /// Starts again what was lost long enough ago, without waiting for it; at the beginning of step `step`.
    pub(crate) fn retry(&mut self, step: u64) {
        self.step = step;
        for device in 0..self.devices.len() {
            if matches!(self.devices[device].presence, Presence::Away { retry_at: Some(at) } if at <= step) {
                match self.spawn(device) {
                    Ok(thread) => self.devices[device].presence = Presence::Starting(thread),
                    Err(error) => self.lose(device, &error),
                }
            }
        }
    }

    /// A device that has come back and may be let in. What such a device says is read with the others' answers.
    pub(crate) fn back(&self) -> Option<usize> {
        self.devices.iter().position(|device| matches!(device.presence, Presence::Back(_)))
    }

    /// Lets a device in that has come back, without the current weights.
    pub(crate) fn admit(&mut self, device: usize) {
        let label = self.label(device).to_owned();
        let presence = &mut self.devices[device].presence;
        if let Presence::Back(thread) = std::mem::replace(presence, Presence::Away { retry_at: None }) {
            *presence = Presence::Here(Present::new(thread, true));
            self.generation += 1;
            self.note(Change::Rejoined(label));
        }
    }
}

/// Waits for the devices that work to end their work, for each as long as for an answer. One that hangs is left to
/// itself.
impl Drop for Fleet {
    fn drop(&mut self) {
        let away = || Presence::Away { retry_at: None };
        for device in &mut self.devices {
            match device.here_mut() {
                Some(present) => present.thread.dismiss(),
                None => device.presence = away(),
            }
        }
        while self.here().next().is_some() {
            match self.watch.wait(&self.events) {
                Some(Envelope { device, thread, event, .. }) => {
                    let device = &mut self.devices[device];
                    match (device.thread(thread), event) {
                        (Some(_), Event::Gone) => device.presence = away(),
                        (Some(thread), event) => thread.heard(&event, &mut self.watch),
                        (None, _) => {}
                    }
                }
                None => {
                    for Device { label, presence, .. } in &mut self.devices {
                        if let Presence::Here(present) = presence
                            && let Some(patience) = present.thread.silence.exceeds(&self.watch, &self.endurance)
                        {
                            log::warn!(
                                "{label} has not ended its work within {patience:.1?}: it hangs, and is left to itself"
                            );
                            *presence = away();
                        }
                    }
                }
            }
        }
    }
}
