//! What a device can be asked to do, what it answers, and what of its worker that calls.

use std::sync::Arc;

use super::patience::Work;
use super::worker::{Shard, ShardReport, Sink, Worker};
use crate::error::{Error, Result};
use crate::optim::{NormOutcome, Update};
use crate::plan::Buffer;

/// For each job: what it goes by, what is answered, what a trace calls it, what kind of work it is, and the work.
macro_rules! jobs {
    ($($(#[$doc:meta])* $job:ident { $($field:ident: $type:ty),* } -> $answer:ty, $name:literal, $kind:ident:
        |$worker:ident, $sink:ident| $work:expr;)*) => {
        /// Something for a device to do.
        #[derive(Debug)]
        pub(crate) enum Job {
            $($(#[$doc])* $job { $($field: $type),* },)*
        }

        /// What comes of a job that was done.
        #[derive(Debug)]
        pub(crate) enum Answer {
            $($job($answer),)*
        }

        impl Job {
            /// What a trace calls it.
            pub(super) fn name(&self) -> &'static str {
                match self { $(Self::$job { .. } => $name,)* }
            }

            /// What kind of work it is.
            pub(super) fn work(&self) -> Work {
                match self { $(Self::$job { .. } => Work::$kind,)* }
            }

            pub(super) fn perform(self, worker: &mut dyn Worker, sink: Sink<'_>) -> Result<Answer> {
                match self {
                    $(Self::$job { $($field),* } => {
                        let ($worker, $sink) = (worker, sink);
                        Ok(Answer::$job($work))
                    })*
                }
            }
        }
    };
}

jobs! {
    /// Where it is not `needed`, a device without the memory refuses instead of failing.
    Prepare { rows: usize, needed: bool } -> Result<usize>, "prepare", Start:
        |worker, _sink| refusable(worker.prepare(rows), |error| !needed && is_too_large(error))?;
    Gradients { shard: Shard, stream: bool } -> ShardReport, "gradients", Gradients:
        |worker, sink| worker.gradients(&shard, stream.then_some(sink))?;
    Evaluate { shard: Shard } -> ShardReport, "evaluate", Evaluate: |worker, _sink| worker.evaluate(&shard)?;
    /// A device without the memory for the optimizer's state refuses.
    Lead {} -> Result<()>, "take the lead", Start:
        |worker, _sink| refusable(worker.lead(), |error| matches!(error, Error::OutOfMemory { .. }))?;
    Follow {} -> (), "give up the lead", Copy: |worker, _sink| worker.follow();
    Update { update: Update, stream: bool } -> NormOutcome, "update", Update:
        |worker, sink| worker.update(&update, stream.then_some(sink))?;
    /// Takes a bucket's sum over all devices.
    TakeSum { bucket: usize, values: Arc<Vec<f32>> } -> (), "receive gradients", Copy:
        |worker, _sink| worker.write(Buffer::Gradient(bucket), &values)?;
    Write { buffer: Buffer, values: Arc<Vec<f32>> } -> (), "receive weights", Copy:
        |worker, _sink| worker.write(buffer, &values)?;
    Read { buffer: Buffer } -> Vec<f32>, "read", Copy: |worker, _sink| worker.read(buffer)?;
    ClearResiduals {} -> (), "clear residuals", Copy: |worker, _sink| worker.clear_residuals()?;
    Fingerprints {} -> Vec<u64>, "fingerprints", Fingerprints: |worker, _sink| worker.fingerprints()?;
}

/// `outcome`, but what is a refusal is an answer.
fn refusable<T>(outcome: Result<T>, is_refusal: impl Fn(&Error) -> bool) -> Result<Result<T>> {
    match outcome {
        Err(error) if is_refusal(&error) => Ok(Err(error)),
        outcome => outcome.map(Ok),
    }
}

fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory { .. } | Error::Limit { .. })
}
