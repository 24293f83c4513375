//! A worker on a thread of its own. Jobs go in, events come out; an error or a panic of the device (wgpu panics in
//! `poll` when a device is lost) becomes an event, and the thread ends.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::job::{Answer, Job};
use super::patience::{Silence, Watch};
use super::worker::Worker;
use crate::error::{Error, Result};
use crate::trace;

/// What a device says.
#[derive(Debug)]
pub(crate) enum Event {
    /// The worker exists, under this name.
    Ready(String),
    /// A bucket of gradients or weights, as part of an answer.
    Bucket {
        bucket: usize,
        values: Vec<f32>,
    },
    Answer(Answer),
    Failed(Error),
    /// The thread has ended; there is no answer after this.
    Gone,
}

/// An event with where it comes from.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) device: usize,
    /// Which of the threads that have served the device.
    pub(super) thread: u32,
    /// The ticket of the job that it answers.
    pub(super) ticket: u64,
    pub(super) event: Event,
}

/// Vectors that go round between the threads, so that a step allocates none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<f32>>>>);

impl Pool {
    /// A vector of `len` values, contents undefined.
    fn take(&self, len: usize) -> Vec<f32> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match free.iter().position(|v| v.len() == len) {
            Some(found) => free.swap_remove(found),
            None => vec![0.0; len],
        }
    }

    pub(crate) fn give(&self, values: Vec<f32>) {
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

/// The fleet's end of a worker's thread. Dropping it leaves the thread to itself.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) number: u32,
    /// `None` once the thread is to end.
    jobs: Option<Sender<(u64, Job)>>,
    pub(super) silence: Silence,
}

impl Thread {
    /// Starts the thread; the first event is `Ready` or `Failed`, with ticket 0, the last one `Gone`.
    pub(super) fn spawn(
        (device, thread): (usize, u32),
        make: WorkerFactory,
        events: Sender<Envelope>,
        pool: Pool,
        watch: &Watch,
    ) -> Result<Self> {
        let (jobs, receiver) = channel();
        let send = move |ticket, event| {
            let _ = events.send(Envelope { device, thread, ticket, event }); // nobody listens once the fleet is gone
        };
        std::thread::Builder::new()
            .name(format!("replica {device}"))
            .spawn(move || {
                // Dropping the driver's objects may panic.
                let _ = catch_unwind(AssertUnwindSafe(|| serve(&make, &receiver, &pool, &send)));
                send(0, Event::Gone);
            })
            .map_err(|e| Error::Training(format!("the thread of replica {device} could not be started: {e}")))?;
        Ok(Self { number: thread, jobs: Some(jobs), silence: Silence::of_start(watch) })
    }

    /// Lets the thread end once it has done what it was asked.
    pub(super) fn dismiss(&mut self) {
        self.jobs = None;
    }

    /// Queues a job. That the thread has ended is told by its `Failed` event, not here.
    pub(super) fn send(&mut self, ticket: u64, job: Job, watch: &Watch) {
        if let Some(jobs) = &self.jobs {
            self.silence.asked(job.work(), watch);
            let _ = jobs.send((ticket, job));
        }
    }

    /// Notes an event of this thread.
    pub(super) fn heard(&mut self, event: &Event, watch: &mut Watch) {
        self.silence.heard(!matches!(event, Event::Bucket { .. }), watch);
        if let Event::Answer(Answer::Prepare(Ok(size))) = event {
            self.silence.prepared(*size);
        }
    }
}

fn serve(make: &WorkerFactory, jobs: &Receiver<(u64, Job)>, pool: &Pool, send: &dyn Fn(u64, Event)) {
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
        let outcome = caught(|| job.perform(worker.as_mut(), &mut hand_out));
        drop(span);
        match outcome {
            Ok(answer) => send(ticket, Event::Answer(answer)),
            Err(error) => return send(ticket, Event::Failed(error)),
        }
    }
}

/// Runs `work`, a panic of which becomes an error. A worker that has panicked is not used again.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Training(format!("the device's driver panicked: {}", words_of(panic.as_ref()))))
    })
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
