//! The devices of a run, seen as threads that take jobs and answer: who works, who leads, who failed or hangs, who comes
//! back. Knows nothing of batches or updates.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

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

/// When a device is given up, and when it is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Endurance {
    /// Longest that a device may take for an answer; `None` for twenty times the longest so far, at least a minute.
    pub hang_timeout: Option<Duration>,
    /// Longest that a device may take to be opened or to compile; `None` for twenty times the longest answer so far, at least
    /// ten minutes.
    pub compile_timeout: Option<Duration>,
    /// Steps after which a lost device is tried again (twice as many after each failure); 0 for never.
    pub rejoin_after: u64,
}

impl Default for Endurance {
    fn default() -> Self {
        Self { hang_timeout: None, compile_timeout: None, rejoin_after: 200 }
    }
}

/// What a device is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// To do what it is ready for.
    Answer,
    /// To be opened, or to compile.
    Start,
}

impl Wait {
    /// Least patience without a configured one.
    const fn least(self) -> Duration {
        match self {
            Self::Answer => Duration::from_secs(60),
            Self::Start => Duration::from_secs(600),
        }
    }
}

/// Patience in multiples of the longest answer so far.
const MULTIPLE: u32 = 20;

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
    slowest: Duration,
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
        let member = |make| Member { make, replica: None, incarnation: 0, retry_at: None, failures: 0, arrived: false };
        let mut fleet = Self {
            members: factories.into_iter().map(member).collect(),
            labels: (0..count).map(|i| format!("device {i}")).collect(),
            alive: vec![true; count],
            sender,
            events,
            pool: Pool::default(),
            ticket: 0,
            endurance,
            slowest: Duration::ZERO,
            step: 0,
            losses: Vec::new(),
        };
        (0..count).try_for_each(|index| fleet.spawn(index))?;
        let mut labels = fleet.labels.clone();
        fleet.collect_for(Wait::Start, 0, (0..count).collect(), |index, event| {
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

    /// A number for a new job, or for several whose answers belong together.
    pub(super) fn ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    /// Queues a job. That the device has failed is told by its event, not here.
    pub(super) fn send(&self, index: usize, ticket: u64, job: Job) {
        if let Some(replica) = &self.members[index].replica {
            replica.send(ticket, job);
        }
    }

    /// The next event of job `ticket`, which the devices `waiting` owe. Leftovers of earlier, abandoned jobs are dropped,
    /// except that a failure counts whenever it comes.
    pub(super) fn next(&mut self, ticket: u64, waiting: &[usize]) -> std::result::Result<(usize, Event), Setback> {
        self.next_for(Wait::Answer, ticket, waiting)
    }

    fn patience(&self, wait: Wait) -> Duration {
        let configured = match wait {
            Wait::Answer => self.endurance.hang_timeout,
            Wait::Start => self.endurance.compile_timeout,
        };
        configured.unwrap_or_else(|| wait.least().max(self.slowest * MULTIPLE))
    }

    fn next_for(&mut self, wait: Wait, ticket: u64, waiting: &[usize]) -> std::result::Result<(usize, Event), Setback> {
        let patience = self.patience(wait);
        let begin = Instant::now();
        loop {
            let envelope = match self.events.recv_timeout(patience.saturating_sub(begin.elapsed())) {
                Ok(envelope) => envelope,
                // The fleet holds a sender itself, so the channel cannot be closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let Some(&index) = waiting.iter().find(|&&w| self.alive[w]) else {
                        return Err(Setback::Fatal(Error::Training("no device answers".into())));
                    };
                    let message = format!("did not answer within {patience:.1?} and is taken for hung");
                    let error = Error::Device { adapter: self.labels[index].clone(), message };
                    if let Some(replica) = self.members[index].replica.take() {
                        replica.abandon();
                    }
                    return Err(self.fail(index, error));
                }
            };
            let Envelope { replica: (index, incarnation), ticket: of, event } = envelope;
            let current = self.members[index].incarnation == incarnation;
            match event {
                Event::Bucket { values, .. } if of != ticket || !current => self.pool.give(values),
                _ if !current => {}
                Event::Failed(error) if self.alive[index] => return Err(self.fail(index, error)),
                Event::Failed(error) => self.postpone(index, &error),
                Event::Ready(label) if !self.alive[index] => {
                    self.labels[index] = label;
                    self.members[index].arrived = true;
                }
                event if of == ticket && self.alive[index] => {
                    if wait == Wait::Answer {
                        self.slowest = self.slowest.max(begin.elapsed());
                    }
                    return Ok((index, event));
                }
                _ => {}
            }
        }
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
    pub(super) fn collect(&mut self, ticket: u64, waiting: Vec<usize>, each: impl FnMut(usize, Event)) -> Result<()> {
        self.collect_for(Wait::Answer, ticket, waiting, each)
    }

    /// The same for jobs in which devices compile.
    pub(super) fn collect_slow(
        &mut self,
        ticket: u64,
        waiting: Vec<usize>,
        each: impl FnMut(usize, Event),
    ) -> Result<()> {
        self.collect_for(Wait::Start, ticket, waiting, each)
    }

    fn collect_for(
        &mut self,
        wait: Wait,
        ticket: u64,
        mut waiting: Vec<usize>,
        mut each: impl FnMut(usize, Event),
    ) -> Result<()> {
        while !waiting.is_empty() {
            let index = match self.next_for(wait, ticket, &waiting) {
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
    pub(super) fn retry(&mut self, step: u64) -> Result<()> {
        self.step = step;
        for index in 0..self.members.len() {
            if !self.alive[index] && self.members[index].retry_at.is_some_and(|at| at <= step) {
                self.members[index].retry_at = None;
                self.spawn(index)?;
            }
        }
        Ok(())
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
