//! Training: the trainer walks epochs and steps of a task; a run folder keeps the record; predictions, exports and tuning
//! stand on the same parts. What a step is, and who does what of it, is the coordinator's.

mod average;
mod data_card;
mod export;
mod generate;
mod options;
mod position;
mod predict;
mod questions;
mod record;
mod residuals;
mod resumable;
mod run_folder;
mod saved;
mod self_test;
mod spike;
mod state;
mod task;
mod trainer;
pub mod tune;

pub use average::saved_weights;
pub use data_card::{DataCard, Fingerprint, Samples};
pub use generate::{Generator, Sampling};
pub use options::TrainOptions;
pub use position::Position;
pub use predict::{Predictor, on_first};
pub use record::{Cause, EpochRecord, Flow, Observer, Progress, RollBack, StepRecord, Tally, Unapplied};
pub use resumable::{check_optimizer, check_state, check_trained};
pub use run_folder::{CheckpointPolicy, RunFolder};
pub use self_test::{KernelCheck, Rejected, SelfTest, check_op, op_errors, projection_error, self_test, usable};
pub use spike::{LossWindow, OnLossSpike, SpikePolicy};
pub use task::Task;
pub use trainer::{FitReport, Trainer};
pub use tune::tune;

pub use crate::balance::{Handover, Idle, Planner as Splitter, Resplit, Sharing, Split, Timed};
pub use crate::coordinator::{Coordinator, Phases};
pub use crate::fleet::{
    Endurance, GpuWorker, Graphs, LostDevice, MicroBatchSize, Shard, ShardReport, Sink, StepKey, Worker, WorkerFactory,
};
pub use crate::plan::Compression;
