//! Training: the trainer walks epochs and steps of a task and tells an observer. What a step is, and who does what of
//! it, is the coordinator's.

mod average;
mod options;
mod position;
mod questions;
mod record;
mod residuals;
mod resumable;
mod saved;
mod spike;
mod state;
mod task;
mod trainer;

pub use average::saved_weights;
pub use options::TrainOptions;
pub use position::Position;
pub use record::{Cause, EpochRecord, Flow, Observer, Progress, RollBack, StepRecord, Tally, Unapplied};
pub(crate) use resumable::check_optimizer;
pub use resumable::{check_state, check_trained};
pub(crate) use saved::values;
pub use spike::{LossWindow, OnLossSpike, SpikePolicy};
pub use task::Task;
pub use trainer::{FitReport, Trainer, TrainerBuilder};

#[cfg(feature = "test-support")]
pub use crate::balance::Planner as Splitter;
pub use crate::balance::{Handover, Idle, Resplit, Sharing, Split, Timed};
pub use crate::coordinator::{Coordinator, Phases};
pub use crate::fleet::{Endurance, LostDevice, MicroBatchSize};
#[cfg(feature = "test-support")]
pub use crate::fleet::{GpuWorker, Graphs, Shard, ShardReport, StepKey, Worker, WorkerFactory};
pub use crate::plan::Compression;
