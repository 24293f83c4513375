//! What a sweep of micro-batch sizes found on one adapter.

use serde::Serialize;

/// Steps of one micro-batch size that were run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measurement {
    /// Bytes on the device's ledger while they ran.
    pub allocated_bytes: u64,
    /// Seconds of the median step: upload, forward, backward, update.
    pub seconds_per_step: f64,
    /// Rows over that time.
    pub samples_per_second: f64,
    /// Steps that were timed; the first one is never among them.
    pub steps: usize,
}

/// What became of a micro-batch size.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran forward, backward and update.
    Ran(Measurement),
    /// It was not tried: by prediction it does not fit.
    Skipped {
        /// Which limit it is over.
        reason: String,
    },
    /// It was tried and did not run.
    Failed {
        /// What happened.
        reason: String,
    },
}

/// A line of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Size {
    /// Rows of the micro-batch.
    pub rows: usize,
    /// Bytes that the plan predicts; none where there is no plan for the device.
    pub predicted_bytes: Option<u64>,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Size {
    /// The measurement, where it ran.
    pub fn ran(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Ran(measurement) => Some(measurement),
            _ => None,
        }
    }
}

/// Why a sweep did not go on to larger micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Two doublings in a row gained less than 5%.
    Knee,
    /// The next size is over the memory limit, or the device ran out of memory.
    Memory,
    /// The next size is over another limit of the adapter (bindings, buffers).
    Limit,
    /// The data set has no more samples.
    Data,
    /// A single step took longer than the time for a whole size.
    Time,
    /// The device failed.
    Failed,
}

impl End {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Knee => "larger micro-batches gain less than 5% a doubling",
            Self::Memory => "the memory ends here",
            Self::Limit => "the adapter's limits end here",
            Self::Data => "the data set has no more samples",
            Self::Time => "a step of this size takes too long to go on",
            Self::Failed => "the device failed",
        }
    }
}

/// One device's sizes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// The sizes, ascending.
    pub sizes: Vec<Size>,
    /// The size to take: the smallest from which on larger ones gain less than 5% a doubling. It is one that ran; none
    /// when none did.
    pub knee: Option<usize>,
    /// Why it ended.
    pub end: End,
}

impl Sweep {
    /// The measurement of micro-batches of `rows`, where they ran.
    pub fn at(&self, rows: usize) -> Option<&Measurement> {
        self.sizes.iter().find(|s| s.rows == rows).and_then(Size::ran)
    }
}
