//! Training: the trainer walks epochs and steps of a task and tells an observer. What a step is, and who does what of it,
//! is the coordinator's.

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
pub use resumable::{check_optimizer, check_state, check_trained};
pub(crate) use saved::values;
pub use spike::{LossWindow, OnLossSpike, SpikePolicy};
pub use task::Task;
pub use trainer::{FitReport, Trainer, TrainerBuilder};

pub use crate::balance::{Handover, Idle, Planner as Splitter, Resplit, Sharing, Split, Timed};
pub use crate::coordinator::{Coordinator, Phases};
pub use crate::fleet::{
    Endurance, GpuWorker, Graphs, LostDevice, MicroBatchSize, Shard, ShardReport, Sink, StepKey, Worker, WorkerFactory,
};
pub use crate::plan::Compression;
