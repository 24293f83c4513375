//! A worker on a thread of its own. Jobs go in, events come out; an error or a panic of the device (wgpu panics in `poll`
//! when a device is lost) becomes an event, and the thread ends.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::patience::Work;
use super::worker::{Shard, ShardReport, Worker};
use crate::error::{Error, Result};
use crate::optim::{NormOutcome, Update};
use crate::plan::Buffer;
use crate::trace;

/// Something for a worker to do.
pub(super) enum Job {
    /// Where it is not `needed`, a device without the memory refuses instead of failing.
    Prepare {
        rows: usize,
        needed: bool,
    },
    Gradients {
        shard: Shard,
        stream: bool,
    },
    Evaluate {
        shard: Shard,
    },
    Lead,
    Follow,
    Update {
        update: Update,
        stream: bool,
    },
    Write {
        buffer: Buffer,
        values: Arc<Vec<f32>>,
    },
    Fingerprints,
    Read {
        buffer: Buffer,
    },
}

impl Job {
    /// What kind of work it is.
    pub(super) fn work(&self) -> Work {
        match self {
            Self::Prepare { .. } | Self::Lead => Work::Start,
            Self::Gradients { .. } => Work::Gradients,
            Self::Evaluate { .. } => Work::Evaluate,
            Self::Update { .. } => Work::Update,
            Self::Fingerprints => Work::Fingerprints,
            Self::Follow | Self::Write { .. } | Self::Read { .. } => Work::Copy,
        }
    }

    /// What a trace calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "prepare",
            Self::Gradients { .. } => "gradients",
            Self::Evaluate { .. } => "evaluate",
            Self::Lead => "take the lead",
            Self::Follow => "give up the lead",
            Self::Update { .. } => "update",
            Self::Write { buffer: Buffer::Gradient(_), .. } => "receive gradients",
            Self::Write { .. } => "receive weights",
            Self::Fingerprints => "fingerprints",
            Self::Read { .. } => "read",
        }
    }
}

/// What a worker says.
#[derive(Debug)]
pub(super) enum Event {
    /// The worker exists, under this name.
    Ready(String),
    Prepared(usize),
    Bucket {
        bucket: usize,
        values: Vec<f32>,
    },
    Shard(ShardReport),
    Leading,
    /// It has not the memory for what it was asked for, and goes on as before.
    Refused(Error),
    Following,
    Updated(NormOutcome),
    Written,
    Fingerprints(Vec<u64>),
    Values(Vec<f32>),
    Failed(Error),
    /// The thread has ended; there is no answer after this.
    Gone,
}

/// An event with where it comes from.
#[derive(Debug)]
pub(super) struct Envelope {
    /// The device's index, and which of the threads that have served it this is.
    pub(super) replica: (usize, u32),
    /// The ticket of the job that it answers.
    pub(super) ticket: u64,
    pub(super) event: Event,
}

/// Vectors that go round between the threads, so that a step allocates none.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Vec<f32>>>>);

impl Pool {
    /// A vector of `len` values, contents undefined.
    pub(super) fn take(&self, len: usize) -> Vec<f32> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match free.iter().position(|v| v.len() == len) {
            Some(found) => free.swap_remove(found),
            None => vec![0.0; len],
        }
    }

    pub(super) fn give(&self, values: Vec<f32>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(values);
    }
}

type Make = dyn Fn() -> Result<Box<dyn Worker>> + Send + Sync;

/// Makes a worker, on the worker's own thread; again, when its device was lost and is tried again.
#[derive(Clone)]
pub struct WorkerFactory(Arc<Make>);

impl WorkerFactory {
    /// A factory that calls `make`.
    pub fn new(make: impl Fn() -> Result<Box<dyn Worker>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl std::fmt::Debug for WorkerFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkerFactory")
    }
}

/// The coordinator's end of a worker's thread. Dropping it leaves the thread to itself.
#[derive(Debug)]
pub(super) struct Replica {
    /// `None` once the thread is to end.
    jobs: Option<Sender<(u64, Job)>>,
}

impl Replica {
    /// Starts the thread; the first event is `Ready` or `Failed`, with ticket 0, the last one `Gone`.
    pub(super) fn spawn(
        replica: (usize, u32),
        make: WorkerFactory,
        events: Sender<Envelope>,
        pool: Pool,
    ) -> Result<Self> {
        let index = replica.0;
        let (jobs, receiver) = channel();
        std::thread::Builder::new()
            .name(format!("replica {index}"))
            .spawn(move || {
                // Dropping the driver's objects may panic.
                let _ = catch_unwind(AssertUnwindSafe(|| serve(replica, &make, &receiver, &events, &pool)));
                let _ = events.send(Envelope { replica, ticket: 0, event: Event::Gone });
            })
            .map_err(|e| Error::Training(format!("the thread of replica {index} could not be started: {e}")))?;
        Ok(Self { jobs: Some(jobs) })
    }

    /// Lets the thread end once it has done what it was asked.
    pub(super) fn dismiss(&mut self) {
        self.jobs = None;
    }

    /// Queues a job. That the thread has ended is told by its `Failed` event, not here.
    pub(super) fn send(&self, ticket: u64, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send((ticket, job));
        }
    }
}

fn serve(
    replica: (usize, u32),
    make: &WorkerFactory,
    jobs: &Receiver<(u64, Job)>,
    events: &Sender<Envelope>,
    pool: &Pool,
) {
    let send = |ticket, event| {
        let _ = events.send(Envelope { replica, ticket, event }); // nobody listens once the coordinator is gone
    };
    let made = caught(|| (make.0)().map(|worker| (worker.label(), worker)));
    let (label, mut worker) = match made {
        Ok(made) => made,
        Err(error) => return send(0, Event::Failed(error)),
    };
    send(0, Event::Ready(label.clone()));
    while let Ok((ticket, job)) = jobs.recv() {
        let mut hand_out = |bucket: usize, bytes: &[u8]| {
            let mut values = pool.take(bytes.len() / 4);
            bytemuck::cast_slice_mut::<f32, u8>(&mut values).copy_from_slice(bytes);
            send(ticket, Event::Bucket { bucket, values });
            Ok(())
        };
        let span = trace::span(|| label.clone(), job.name());
        let outcome = caught(|| perform(worker.as_mut(), job, &mut hand_out));
        drop(span);
        match outcome {
            Ok(event) => send(ticket, event),
            Err(error) => return send(ticket, Event::Failed(error)),
        }
    }
}

fn perform(worker: &mut dyn Worker, job: Job, hand_out: &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<Event> {
    Ok(match job {
        Job::Prepare { rows, needed } => match worker.prepare(rows) {
            Err(error @ (Error::OutOfMemory { .. } | Error::Limit { .. })) if !needed => Event::Refused(error),
            size => Event::Prepared(size?),
        },
        Job::Gradients { shard, stream } => Event::Shard(worker.gradients(&shard, stream.then_some(hand_out))?),
        Job::Evaluate { shard } => Event::Shard(worker.evaluate(&shard)?),
        Job::Lead => match worker.lead() {
            Ok(()) => Event::Leading,
            Err(error @ Error::OutOfMemory { .. }) => Event::Refused(error),
            Err(error) => return Err(error),
        },
        Job::Follow => {
            worker.follow();
            Event::Following
        }
        Job::Update { update, stream } => Event::Updated(worker.update(&update, stream.then_some(hand_out))?),
        Job::Write { buffer, values } => {
            worker.write(buffer, &values)?;
            Event::Written
        }
        Job::Fingerprints => Event::Fingerprints(worker.fingerprints()?),
        Job::Read { buffer } => Event::Values(worker.read(buffer)?),
    })
}

/// Runs `work`, a panic of which becomes an error. A worker that has panicked is not used again.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Training(format!("the device's driver panicked: {}", words_of(panic.as_ref()))))
    })
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
