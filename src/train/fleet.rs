//! The devices of a run, seen as threads that take jobs and answer: who works, who leads, who failed or hangs, who comes
//! back. Knows nothing of batches or updates.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::patience::{Endurance, Silence, Watch};
use super::replica::{Envelope, Event, Job, Pool, Replica, WorkerFactory};
use crate::error::{Error, Result};

/// A device that stopped working.
#[derive(Debug)]
pub struct Loss {
    /// Its index among the run's devices.
    pub device: usize,
    /// Its name.
    pub label: String,
    /// Why.
    pub error: Error,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, error, .. } = self;
        let error = error.to_string();
        // Most errors of a device begin with its name.
        let name = if error.starts_with(label.as_str()) { String::new() } else { format!("{label}: ") };
        write!(f, "{name}{error}; it is left out from now on")
    }
}

/// Why something could not be finished.
pub(super) enum Setback {
    /// A device failed; it has been taken out.
    Device(usize),
    /// Nothing can be done.
    Fatal(Error),
}

#[derive(Debug)]
struct Member {
    make: WorkerFactory,
    /// `None` once the device has failed.
    replica: Option<Replica>,
    /// Counts the threads that have served this device: what earlier ones still say does not count.
    incarnation: u32,
    /// Step at which it is tried again.
    retry_at: Option<u64>,
    failures: u32,
    /// It is back and waits to be let in.
    arrived: bool,
    silence: Silence,
}

impl Member {
    /// Takes note of an event of its present thread.
    fn hear(&mut self, event: &Event, watch: &mut Watch) {
        match event {
            Event::Gone => self.replica = None,
            event => self.silence.heard(event, watch),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Fleet {
    members: Vec<Member>,
    labels: Vec<String>,
    alive: Vec<bool>,
    sender: Sender<Envelope>,
    events: Receiver<Envelope>,
    pool: Pool,
    ticket: u64,
    endurance: Endurance,
    watch: Watch,
    /// The step that is being taken, which retries are counted in.
    step: u64,
    losses: Vec<Loss>,
}

impl Fleet {
    /// Starts a thread for each worker and waits until all exist or have failed.
    ///
    /// # Errors
    /// When none starts.
    pub(super) fn start(factories: Vec<WorkerFactory>, endurance: Endurance) -> Result<Self> {
        let (sender, events) = channel();
        let count = factories.len();
        let member = |make| Member {
            make,
            replica: None,
            incarnation: 0,
            retry_at: None,
            failures: 0,
            arrived: false,
            silence: Silence::default(),
        };
        let mut fleet = Self {
            members: factories.into_iter().map(member).collect(),
            labels: (0..count).map(|i| format!("device {i}")).collect(),
            alive: vec![true; count],
            sender,
            events,
            pool: Pool::default(),
            ticket: 0,
            endurance,
            watch: Watch::default(),
            step: 0,
            losses: Vec::new(),
        };
        for index in 0..count {
            if let Err(error) = fleet.spawn(index)
                && let Setback::Fatal(error) = fleet.fail(index, error)
            {
                return Err(error);
            }
        }
        let mut labels = fleet.labels.clone();
        let started = fleet.live().collect();
        fleet.collect(0, started, |index, event| {
            if let Event::Ready(label) = event {
                labels[index] = label;
            }
        })?;
        fleet.labels = labels;
        Ok(fleet)
    }

    fn spawn(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.incarnation += 1;
        member.silence = Silence::of_start(&self.watch);
        let (make, incarnation) = (member.make.clone(), member.incarnation);
        member.replica = Some(Replica::spawn((index, incarnation), make, self.sender.clone(), self.pool.clone())?);
        Ok(())
    }

    pub(super) fn labels(&self) -> &[String] {
        &self.labels
    }

    pub(super) fn alive(&self) -> &[bool] {
        &self.alive
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The devices that work.
    pub(super) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.alive.len()).filter(|&i| self.alive[i])
    }

    pub(super) fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }

    /// Time in which this process did not run while it waited, so far.
    pub(super) fn stood_still(&self) -> Duration {
        self.watch.stood_still()
    }

    /// A number for a new job, or for several whose answers belong together.
    pub(super) fn ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    /// Queues a job. That the device has failed is told by its event, not here.
    pub(super) fn send(&mut self, index: usize, ticket: u64, job: Job) {
        let member = &mut self.members[index];
        if let Some(replica) = &member.replica {
            member.silence.asked(job.work(), &self.watch);
            replica.send(ticket, job);
        }
    }

    /// The next event of job `ticket`, which the devices `waiting` owe. Leftovers of earlier, abandoned jobs are dropped,
    /// except that a failure counts whenever it comes.
    pub(super) fn next(&mut self, ticket: u64, waiting: &[usize]) -> std::result::Result<(usize, Event), Setback> {
        loop {
            let Some(envelope) = self.watch.wait(&self.events) else {
                if let Some(setback) = self.give_up(waiting) {
                    return Err(setback);
                }
                continue;
            };
            let Envelope { replica: (index, incarnation), ticket: of, event } = envelope;
            let member = &mut self.members[index];
            let current = member.incarnation == incarnation;
            if current {
                member.hear(&event, &mut self.watch);
            }
            match event {
                Event::Bucket { values, .. } if of != ticket || !current => self.pool.give(values),
                _ if !current => {}
                Event::Failed(error) if self.alive[index] => return Err(self.fail(index, error)),
                Event::Failed(error) => self.postpone(index, &error),
                Event::Ready(label) if !self.alive[index] => {
                    self.labels[index] = label;
                    self.members[index].arrived = true;
                }
                Event::Gone if self.alive[index] => {
                    let message = "its thread ended without a word".to_owned();
                    return Err(self.fail(index, Error::Device { adapter: self.labels[index].clone(), message }));
                }
                event if of == ticket && self.alive[index] => return Ok((index, event)),
                _ => {}
            }
        }
    }

    /// Takes out a device of `waiting` that has been silent for too long.
    fn give_up(&mut self, waiting: &[usize]) -> Option<Setback> {
        if !waiting.iter().any(|&w| self.alive[w]) {
            return Some(Setback::Fatal(Error::Training("no device answers".into())));
        }
        let given_up = |&index: &usize| {
            let patience = self.members[index].silence.exceeds(&self.watch, &self.endurance)?;
            self.alive[index].then_some((index, patience))
        };
        let (index, patience) = waiting.iter().find_map(given_up)?;
        let message = format!("did not answer within {patience:.1?} and is taken for hung");
        let error = Error::Device { adapter: self.labels[index].clone(), message };
        let member = &mut self.members[index];
        // Its thread is left to itself: it ends when its driver lets go of it, if ever. What it still says does not count.
        member.replica = None;
        member.incarnation += 1;
        Some(self.fail(index, error))
    }

    /// Takes device `index` out.
    pub(super) fn fail(&mut self, index: usize, error: Error) -> Setback {
        self.alive[index] = false;
        let label = self.labels[index].clone();
        if self.alive.len() == 1 {
            return Setback::Fatal(error);
        }
        if !self.alive.contains(&true) {
            return Setback::Fatal(Error::Training(format!(
                "no device is left; the last one, {label}, failed: {error}"
            )));
        }
        log::info!("{label} stopped working and is left out from now on: {error}");
        self.postpone(index, &error);
        self.losses.push(Loss { device: index, label, error });
        Setback::Device(index)
    }

    /// Sets when a lost device is tried again.
    fn postpone(&mut self, index: usize, error: &Error) {
        let member = &mut self.members[index];
        log::debug!("{} is not there: {error}", self.labels[index]);
        let delay = self.endurance.rejoin_after.saturating_mul(1 << member.failures.min(10));
        member.failures += 1;
        member.arrived = false;
        member.retry_at = (delay > 0).then(|| self.step + delay);
    }

    /// Waits for the answers of the devices `waiting`; one that fails instead is passed over.
    pub(super) fn collect(
        &mut self,
        ticket: u64,
        mut waiting: Vec<usize>,
        mut each: impl FnMut(usize, Event),
    ) -> Result<()> {
        while !waiting.is_empty() {
            let index = match self.next(ticket, &waiting) {
                Ok((index, event)) => {
                    each(index, event);
                    index
                }
                Err(Setback::Device(index)) => index,
                Err(Setback::Fatal(error)) => return Err(error),
            };
            waiting.retain(|&w| w != index);
        }
        Ok(())
    }

    /// Starts again what was lost long enough ago, without waiting for it; at the beginning of step `step`.
    pub(super) fn retry(&mut self, step: u64) {
        self.step = step;
        for index in 0..self.members.len() {
            if !self.alive[index] && self.members[index].retry_at.is_some_and(|at| at <= step) {
                self.members[index].retry_at = None;
                if let Err(error) = self.spawn(index) {
                    self.postpone(index, &error);
                }
            }
        }
    }

    /// A device that has come back and may be let in.
    pub(super) fn arrived(&self) -> Option<usize> {
        // What it says is read with the other devices' answers.
        self.members.iter().position(|member| member.arrived)
    }

    /// Lets a device in that has come back. The caller sees to its weights.
    pub(super) fn admit(&mut self, index: usize) {
        self.members[index].arrived = false;
        self.alive[index] = true;
    }
}

/// Waits for the devices that work to end their work, for each as long as for an answer. One that hangs is left to itself.
impl Drop for Fleet {
    fn drop(&mut self) {
        for (member, alive) in self.members.iter_mut().zip(&self.alive) {
            match &mut member.replica {
                Some(replica) if *alive => replica.dismiss(),
                // It has failed, or is being opened again.
                _ => member.replica = None,
            }
        }
        while self.members.iter().any(|member| member.replica.is_some()) {
            match self.watch.wait(&self.events) {
                Some(Envelope { replica: (index, incarnation), event, .. }) => {
                    let member = &mut self.members[index];
                    if member.incarnation == incarnation {
                        member.hear(&event, &mut self.watch);
                    }
                }
                None => {
                    for (member, label) in self.members.iter_mut().zip(&self.labels) {
                        if let Some(patience) = member.silence.exceeds(&self.watch, &self.endurance)
                            && member.replica.take().is_some()
                        {
                            log::warn!(
                                "{label} has not ended its work within {patience:.1?}: it hangs, and is left to itself"
                            );
                        }
                    }
                }
            }
        }
    }
}
