//! The bytes that a run allocates on a device: the executor makes exactly the buffers listed here, and a test holds its
//! ledger against them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{ALIGNMENT, Buffer, Compression, Dispatch, Layout, Plan, PlannedInput};

/// One buffer to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// What it is for.
    pub label: String,
    /// Its size.
    pub bytes: u64,
}

impl Allocation {
    /// `bytes`, but at least 16 (WebGPU has no empty bindings) and a multiple of 4 (for copies).
    pub fn new(label: impl Into<String>, bytes: u64) -> Self {
        Self { label: label.into(), bytes: bytes.max(16).next_multiple_of(4) }
    }

    /// The allocation of a planned buffer.
    pub fn of(buffer: Buffer, bytes: u64) -> Self {
        Self::new(buffer.to_string(), bytes)
    }
}

/// A list of buffers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint(pub Vec<Allocation>);

impl Footprint {
    /// The sum of their sizes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|a| a.bytes).sum()
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for allocation in &self.0 {
            writeln!(f, "{:>14}  {}", allocation.bytes, allocation.label)?;
        }
        writeln!(f, "{:>14}  total", self.bytes())
    }
}

/// Ranges of tensors of these sizes one after the other, each aligned.
fn aligned(start: u64, sizes: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut at = start;
    sizes
        .map(|bytes| {
            let range = at..at + bytes;
            at = range.end.next_multiple_of(ALIGNMENT);
            range
        })
        .collect()
}

/// The uniform that the kernels of so many dispatches see as `sizes`: [`ALIGNMENT`] bytes each.
pub(crate) fn sizes(dispatches: usize) -> Allocation {
    Allocation::new("sizes", dispatches as u64 * ALIGNMENT)
}

/// What [`sizes`] starts with.
pub(crate) fn sizes_of(dispatches: &[Dispatch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for dispatch in dispatches {
        let next = bytes.len() + ALIGNMENT as usize;
        bytes.extend(dispatch.kernel.sizes.iter().flat_map(|(_, size)| size.to_le_bytes()));
        bytes.resize(next, 0);
    }
    bytes
}

impl Plan {
    /// Where each input that is not a constant stands in the upload buffer, whose first [`ALIGNMENT`] bytes are the
    /// step uniform.
    pub(crate) fn upload_ranges(&self) -> Vec<Range<u64>> {
        aligned(ALIGNMENT, self.uploaded().map(|(_, i)| i.ty.bytes() as u64))
    }

    /// The inputs that are not constants, with their indices.
    pub(crate) fn uploaded(&self) -> impl Iterator<Item = (usize, &PlannedInput)> {
        self.inputs.iter().enumerate().filter(|(_, input)| input.constant.is_none())
    }

    /// Where each output stands in the download buffer.
    pub(crate) fn output_ranges(&self) -> Vec<Range<u64>> {
        aligned(0, self.outputs.iter().map(|o| o.ty.bytes() as u64))
    }

    /// A buffer that the host writes a micro-batch to; an executable has two.
    pub fn upload(&self) -> Allocation {
        Allocation::new("upload", self.upload_ranges().last().map_or(ALIGNMENT, |r| r.end))
    }

    /// The buffer that the host reads outputs from, where there are any.
    pub(crate) fn download(&self) -> Option<Allocation> {
        self.output_ranges().last().map(|r| Allocation::new("outputs", r.end))
    }

    /// The uniform that kernels see as `step`.
    pub(crate) fn step_uniform(&self) -> Allocation {
        Allocation::new("step uniform", size_of::<crate::kernel::Step>() as u64)
    }

    /// What an executable of this plan allocates.
    pub fn footprint(&self) -> Footprint {
        let slots = self.slots.iter().enumerate().map(|(i, &bytes)| Allocation::of(Buffer::Slot(i), bytes));
        let inputs =
            self.inputs.iter().enumerate().map(|(i, input)| Allocation::of(Buffer::Input(i), input.ty.bytes() as u64));
        let carried = self.carried.iter().enumerate().map(|(i, &bytes)| Allocation::of(Buffer::Carried(i), bytes));
        let fixed = [self.step_uniform(), sizes(self.dispatches.len()), self.upload(), self.upload()];
        Footprint(slots.chain(inputs).chain(carried).chain(fixed).chain(self.download()).collect())
    }
}

/// Bytes of what a device's clock says.
pub(crate) const QUERY_BYTES: u64 = 8;

/// Compute passes between two read-backs that are timed at most: a step has one a micro-batch, and one a bucket in the
/// last.
const TIMED_PASSES: u64 = 256;

/// The buffers that hold a model on a device, whatever plan runs over them.
#[derive(Debug, Clone)]
pub struct Storage {
    /// Where the parameters are.
    pub layout: Arc<Layout>,
    /// Parameters, by bucket.
    pub parameters: Vec<Allocation>,
    /// Gradients, by bucket; none for inference.
    pub gradients: Vec<Allocation>,
    /// Scalar statistics.
    pub statistics: Allocation,
    /// How many of them there are.
    pub statistic_count: usize,
    /// Fingerprints of the parameters; none where there are no other devices to compare with.
    pub fingerprints: Option<Allocation>,
    /// How gradients are handed out.
    pub compression: Compression,
    /// What rounding took away of the gradients, by trained bucket; none where they are handed out as they are.
    pub residuals: Vec<Allocation>,
    /// Gradients in half the bits, by trained bucket.
    pub packed: Vec<Allocation>,
    /// The sizes of the kernels that pack them.
    pub packing: Option<Allocation>,
    /// Host-visible buffers that buckets are read through.
    pub downloads: Vec<Allocation>,
    /// Host-visible buffers that buckets are written through.
    pub uploads: Vec<Allocation>,
    /// The host-visible buffer of norm and statistics, and behind them of what the clock noted.
    pub report: Allocation,
    /// What the device's clock notes of its compute passes, a begin and an end each; none where they are not timed.
    pub queries: Option<Allocation>,
}

/// The buffers that only the device that applies updates has.
#[derive(Debug, Clone)]
pub struct UpdateStorage {
    /// Optimizer state, by moment and bucket.
    pub state: Vec<Vec<Allocation>>,
    /// The chunks and partial sums of the norm.
    pub partials: Allocation,
    /// Outcome of the norm pass.
    pub norm: Allocation,
    /// The uniform that kernels see as `update`.
    pub uniform: Allocation,
    /// The kernels' sizes.
    pub sizes: Allocation,
}

impl Storage {
    /// What a model takes: with `gradients` for training, and with a host-visible buffer for each bucket where it
    /// `exchanges` them with other devices (else one, of the largest bucket's size, serves checkpoints).
    pub fn new(layout: &Arc<Layout>, statistic_count: usize, gradients: bool, exchanges: bool) -> Self {
        let buckets = || layout.buckets().iter().copied().enumerate();
        let transfers = |name: &str| match exchanges {
            true => buckets().map(|(b, bytes)| Allocation::new(format!("{name} {b}"), bytes)).collect(),
            false => vec![Allocation::new(name, layout.buckets().iter().copied().max().unwrap_or(0))],
        };
        let statistics = statistic_count as u64 * ALIGNMENT;
        let fingerprints = layout.buckets().len() as u64 * ALIGNMENT;
        Self {
            layout: layout.clone(),
            parameters: buckets().map(|(b, bytes)| Allocation::of(Buffer::Parameter(b), bytes)).collect(),
            gradients: match gradients {
                true => buckets().map(|(b, bytes)| Allocation::of(Buffer::Gradient(b), bytes)).collect(),
                false => Vec::new(),
            },
            statistics: Allocation::of(Buffer::Statistics, statistics),
            statistic_count,
            fingerprints: exchanges.then(|| Allocation::of(Buffer::Fingerprints, fingerprints)),
            compression: Compression::None,
            residuals: Vec::new(),
            packed: Vec::new(),
            packing: None,
            downloads: transfers("download"),
            uploads: transfers("upload of bucket"),
            report: Allocation::new("report", statistics.max(if exchanges { fingerprints } else { ALIGNMENT })),
            queries: None,
        }
    }

    /// The same with what packing takes, where gradients are exchanged with other devices. Sums for running statistics,
    /// in the buckets behind the trained ones, are no gradients and handed out as they are.
    pub fn compressed(mut self, compression: Compression) -> Self {
        // Only a device with peers has fingerprints.
        if compression != Compression::None && self.fingerprints.is_some() {
            let buckets = || self.layout.buckets()[..self.layout.trained_buckets()].iter().copied().enumerate();
            self.residuals = buckets().map(|(b, bytes)| Allocation::of(Buffer::Residual(b), bytes)).collect();
            self.packed = buckets().map(|(b, bytes)| Allocation::of(Buffer::Packed(b), bytes / 2)).collect();
            self.packing = Some(sizes(self.packed.len()));
            self.compression = compression;
        }
        self
    }

    /// The same with what timing takes, where the device has a clock.
    pub fn timed(mut self, has_clock: bool) -> Self {
        if has_clock && self.queries.is_none() {
            let queries = Allocation::new("times of passes", 2 * TIMED_PASSES * QUERY_BYTES);
            self.report.bytes += queries.bytes;
            self.queries = Some(queries);
        }
        self
    }

    /// What the lead has beside it, for an update of so many dispatches.
    pub(crate) fn for_update(layout: &Layout, moments: usize, partials: u64, dispatches: usize) -> UpdateStorage {
        let state = |moment| {
            let of = |(bucket, &bytes): (usize, &u64)| Allocation::of(Buffer::State { moment, bucket }, bytes);
            layout.buckets().iter().enumerate().map(of).collect()
        };
        UpdateStorage {
            state: (0..moments).map(state).collect(),
            partials: Allocation::of(Buffer::Partials, partials),
            norm: Allocation::of(Buffer::Norm, 16),
            uniform: Allocation::new("update uniform", 16),
            sizes: sizes(dispatches),
        }
    }

    /// All of it.
    pub fn footprint(&self) -> Footprint {
        let packing = [&self.residuals, &self.packed];
        let lists = [&self.parameters, &self.gradients, &self.downloads, &self.uploads].into_iter().chain(packing);
        let few = [&self.statistics, &self.report].into_iter().chain(&self.fingerprints).chain(&self.queries);
        let all = lists.flatten().chain(few).chain(&self.packing);
        Footprint(all.cloned().collect())
    }
}

impl UpdateStorage {
    /// All of it.
    pub fn footprint(&self) -> Footprint {
        let all = self.state.iter().flatten().chain([&self.partials, &self.norm, &self.uniform, &self.sizes]);
        Footprint(all.cloned().collect())
    }
}
