//! Training over several devices: the coordinator splits each global batch, sums gradients in replica order, has one
//! device apply the update and broadcasts the weights; the trainer walks epochs and steps; a run folder keeps the record.
//!
//! One thread a device runs a [`Worker`], the seam behind which real devices, simulated ones and injected faults look
//! alike. The coordinator sees buckets' values and sample counts, not ops; a worker does not know how many peers it has.

mod apportion;
mod average;
mod coordinator;
mod cross_check;
mod data_card;
mod export;
mod fleet;
mod generate;
mod gpu_worker;
mod idle;
mod lead;
mod options;
mod patience;
mod predict;
mod probe;
mod recent;
mod record;
mod reduce;
mod replica;
mod residuals;
mod rest;
mod resumable;
mod run_folder;
mod self_test;
mod speed;
mod spike;
mod split;
mod state;
mod task;
mod trainer;
pub mod tune;
mod worker;

pub use average::saved_weights;
pub use coordinator::{Coordinator, Phases, StepEnd, StepReport};
pub use data_card::{DataCard, Fingerprint, Samples};
pub use fleet::Loss;
pub use generate::{Generator, Sampling};
pub use gpu_worker::GpuWorker;
pub use idle::Idle;
pub use lead::{Handover, Timed};
pub use options::{MicroBatchSize, TrainOptions};
pub use patience::Endurance;
pub use predict::{Predictor, on_first};
pub use record::{Cause, EpochRecord, Flow, Observer, Progress, RollBack, StepRecord, Tally, Unapplied};
pub use replica::WorkerFactory;
pub use rest::Sharing;
pub use resumable::{check_optimizer, check_state, check_trained};
pub use run_folder::{CheckpointPolicy, RunFolder};
pub use self_test::{KernelCheck, Rejected, SelfTest, check_op, op_errors, projection_error, self_test, usable};
pub use spike::{LossWindow, OnLossSpike, SpikePolicy};
pub use split::{Resplit, Split, Splitter};
pub use state::Position;
pub use task::Task;
pub use trainer::{FitReport, Trainer};
pub use tune::tune;
pub use worker::{Shard, ShardReport, StepKey, Worker};

pub use crate::plan::Compression;
