//! Gathers batches on a thread of its own, a few ahead of the consumer, so that training does not wait for data. What
//! is gathered, and in which order, is the caller's: the loader neither shuffles nor drops. Knows nothing of training.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::trace;

/// An iterator over gathered batches, in order. After an error it ends. Dropping it stops and joins the thread.
#[derive(Debug)]
pub(crate) struct Loader {
    /// `None` once the batches have ended or the loader is being dropped.
    batches: Option<Receiver<Result<Batch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts gathering the samples of each of `batches` from `dataset`, at most `depth` batches ahead (at least 1).
    ///
    /// `batches` runs on the loader's thread and must not block for long: dropping the loader waits for it.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start<I>(dataset: Arc<dyn Dataset>, batches: I, depth: usize) -> Result<Self>
    where
        I: Iterator<Item = Vec<usize>> + Send + 'static,
    {
        let (sender, receiver) = sync_channel(depth.max(1));
        let thread = std::thread::Builder::new()
            .name("loader".into())
            .spawn(move || {
                // The closure owns everything that could be seen half-changed, so unwinding out of it is harmless.
                let work = AssertUnwindSafe(|| gather_all(dataset.as_ref(), batches, &sender));
                if let Err(panic) = catch_unwind(work) {
                    let error = Error::Training(format!("loading data failed: {}", message(panic.as_ref())));
                    let _ = sender.send(Err(error)); // nobody listens when the consumer is gone
                }
            })
            .map_err(|error| Error::Training(format!("the loader's thread could not be started: {error}")))?;
        Ok(Self { batches: Some(receiver), thread: Some(thread) })
    }

    /// Stops the thread and waits for it.
    fn stop(&mut self) {
        self.batches = None; // a sender that waits for room fails now
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panics were caught and sent
        }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        let next = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        if !matches!(next, Some(Ok(_))) {
            self.stop();
        }
        next
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends one batch after the other until the end, the first error, or the consumer's.
fn gather_all(dataset: &dyn Dataset, batches: impl Iterator<Item = Vec<usize>>, sender: &SyncSender<Result<Batch>>) {
    for indices in batches {
        let span = trace::span(|| "loader".to_owned(), "gather").map(|span| span.rows(indices.len()));
        let batch = dataset.gather(&indices);
        drop(span);
        let failed = batch.is_err();
        if sender.send(batch).is_err() || failed {
            return;
        }
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::{Sampler, TensorDataset};
    use super::*;
    use crate::tensor::{HostTensor, TensorType};

    fn numbers(n: u16) -> TensorDataset {
        let column = || HostTensor::f32([usize::from(n), 1], (0..n).map(f32::from).collect()).unwrap();
        TensorDataset::regression(column(), column()).unwrap()
    }

    /// Counts what is gathered; panics on sample 99.
    struct Watched {
        data: TensorDataset,
        gathered: Arc<AtomicUsize>,
    }

    impl Dataset for Watched {
        fn len(&self) -> usize {
            self.data.len()
        }
        fn input_type(&self) -> TensorType {
            self.data.input_type()
        }
        fn target_type(&self) -> TensorType {
            self.data.target_type()
        }
        fn classes(&self) -> Option<&[String]> {
            None
        }
        fn gather(&self, indices: &[usize]) -> Result<Batch> {
            assert!(!indices.contains(&99), "sample 99 is cursed");
            self.gathered.fetch_add(1, Ordering::SeqCst);
            self.data.gather(indices)
        }
    }

    fn watched() -> (Arc<Watched>, Arc<AtomicUsize>) {
        let gathered = Arc::new(AtomicUsize::new(0));
        (Arc::new(Watched { data: numbers(100), gathered: gathered.clone() }), gathered)
    }

    #[test]
    fn batches_come_in_the_order_asked_for() {
        let sampler = Sampler::new(50, 8, 3, true, false).unwrap();
        let data = Arc::new(numbers(50));
        for depth in [0, 1, 100] {
            let expected: Vec<_> = sampler.clone().batches_from(2, 3).take(9).collect();
            let loader = Loader::start(data.clone(), sampler.clone().batches_from(2, 3).take(9), depth).unwrap();
            let loaded: Vec<Batch> = loader.map(Result::unwrap).collect();
            let gathered: Vec<Batch> = expected.iter().map(|indices| data.gather(indices).unwrap()).collect();
            assert_eq!(loaded, gathered);
        }
    }

    #[test]
    fn it_works_ahead_by_its_depth_and_stops_when_dropped() {
        let (data, gathered) = watched();
        let mut loader = Loader::start(data.clone(), std::iter::repeat_with(|| vec![1, 2]), 3).unwrap();
        assert_eq!(loader.next().unwrap().unwrap().len(), 2);
        drop(loader); // joined: nothing is gathered after this
        let count = gathered.load(Ordering::SeqCst);
        assert!((1..=5).contains(&count), "{count}"); // taken + depth + one in hand
        assert_eq!(Arc::strong_count(&data), 1);
    }

    #[test]
    fn an_error_is_handed_over_once_and_ends_the_batches() {
        let batches = vec![vec![0], vec![1000], vec![1]];
        let mut loader = Loader::start(Arc::new(numbers(10)), batches.into_iter(), 2).unwrap();
        assert!(loader.next().unwrap().is_ok());
        let error = loader.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "indices: sample 1000 of a data set of 10");
        assert!(loader.next().is_none() && loader.next().is_none());
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let (data, _) = watched();
        let mut loader = Loader::start(data, vec![vec![0], vec![99], vec![1]].into_iter(), 1).unwrap();
        assert!(loader.next().unwrap().is_ok());
        let error = loader.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "training stopped: loading data failed: sample 99 is cursed");
        assert!(loader.next().is_none());

        let (data, _) = watched();
        let batches = (0..3).map(|i| if i == 1 { panic!("no batch {i}") } else { vec![0] });
        let last = Loader::start(data, batches, 1).unwrap().last().unwrap();
        assert!(last.unwrap_err().to_string().ends_with("no batch 1"));
    }
}
