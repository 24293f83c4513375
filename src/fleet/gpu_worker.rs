//! A real device as a [`Worker`].

use std::sync::Arc;
use std::time::Instant;

use super::micro_batch::{MicroBatchSize, piece};
use super::worker::{Shard, ShardReport, Sink, Worker};
use crate::error::{Error, Result};
use crate::gpu::{Device, Duty, Engine, Executable, MicroBatch};
use crate::graph::Graph;
use crate::kernel::Step;
use crate::optim::{NormOutcome, Update, UpdatePlan};
use crate::plan::{Buffer, Compression, Layout, Plan, Storage};
use crate::rng::words;
use crate::trace;

/// Executables kept for sizes used before, so that a split that goes back does not compile again.
const KEPT: usize = 2;

/// What a device runs: a model's graphs by number of rows.
pub trait Graphs: std::fmt::Debug {
    /// Forward, loss and backward.
    ///
    /// # Errors
    /// When the model does not work on its input.
    fn training(&self, rows: usize) -> Result<Graph>;

    /// Forward and statistics.
    ///
    /// # Errors
    /// When the model does not work on its input.
    fn evaluation(&self, rows: usize) -> Result<Graph>;

    /// Number of statistics.
    fn statistics(&self) -> usize;
}

/// A real device as a [`Worker`]: an engine, and the executables for the sizes of micro-batches used last.
#[derive(Debug)]
pub struct GpuWorker {
    engine: Engine,
    graphs: Box<dyn Graphs>,
    layout: Arc<Layout>,
    update: Arc<UpdatePlan>,
    micro_batch: MicroBatchSize,
    /// Rows that a micro-batch must not cut.
    group: usize,
    /// Most recently used first.
    training: Vec<Executable>,
    /// With the training's size of micro-batch that it was made for, beside which it may have had to be smaller.
    evaluation: Option<(usize, Executable)>,
    /// Rows that it was last prepared for, and the micro-batch's size that was chosen.
    prepared: usize,
    size: usize,
    compression: Compression,
    /// The step whose gradients were packed last.
    packed: Option<u64>,
    /// A bucket that was packed on the device; reused from bucket to bucket.
    unpacked: Vec<f32>,
}

impl GpuWorker {
    /// Allocates a model's buffers on `device`; `exchanges` says whether gradients and weights will pass through the
    /// host, and `compression` how the gradients do.
    ///
    /// # Errors
    /// When the device lacks the memory, or fails.
    pub fn new(
        device: Arc<Device>,
        graphs: impl Graphs + 'static,
        layout: Arc<Layout>,
        update: Arc<UpdatePlan>,
        micro_batch: MicroBatchSize,
        exchanges: bool,
        compression: Compression,
    ) -> Result<Self> {
        let storage = Storage::new(&layout, graphs.statistics(), true, exchanges)
            .compressed(compression)
            .timed(device.has_clock());
        let engine = Engine::new(device, &storage, &Duty::Follower)?;
        let (group, compression) = (graphs.training(1)?.group(), storage.compression);
        Ok(Self {
            engine,
            graphs: Box::new(graphs),
            layout,
            update,
            micro_batch,
            group,
            training: Vec::new(),
            evaluation: None,
            prepared: 0,
            size: 0,
            compression,
            packed: None,
            unpacked: Vec::new(),
        })
    }

    fn compile(&self, graph: &Graph) -> Result<Executable> {
        let plan = Plan::new(graph, self.layout.clone(), self.engine.device().target())?;
        self.engine.compile(Arc::new(plan))
    }

    /// Runs a shard's micro-batches; the last one with `sink`, which gets packed gradients where `gradient_scale` is
    /// not 0.
    fn run(
        engine: &mut Engine,
        executable: &mut Executable,
        shard: &Shard,
        gradient_scale: f32,
        mut sink: Option<Sink<'_>>,
    ) -> Result<()> {
        let rows = executable.micro_batch();
        let (batch, range) = (&shard.batch, &shard.rows);
        let mut start = range.start;
        while start < range.end {
            let end = (start + rows).min(range.end);
            let step = Step {
                seed: words(shard.key.seed),
                step: shard.key.step as u32,
                first_row: start as u32,
                valid: (end - start) as u32,
                gradient_scale,
                first: u32::from(start == range.start),
                reserved: 0,
            };
            let inputs = [
                batch.inputs.row_bytes(start..end),
                batch.targets.row_bytes(start..end),
                bytemuck::cast_slice(&batch.weights[start..end]),
            ];
            let micro_batch = MicroBatch { step, inputs: &inputs };
            let last = end == range.end;
            let track = || format!("{} host", engine.device().label());
            let _span = trace::span(track, "micro-batch").map(|span| span.rows(end - start));
            engine.run(executable, &micro_batch, if last { sink.take() } else { None })?;
            start = end;
        }
        Ok(())
    }

    /// Prepares to run `rows` rows forward: in micro-batches of the training's size, or of as much less as the memory
    /// allows.
    fn prepare_evaluation(&mut self, rows: usize) -> Result<()> {
        let wanted = self.training.first().map_or_else(|| self.micro_batch.rows(rows, 1), Executable::micro_batch);
        let fits = |(made_for, _): &(usize, Executable)| *made_for == wanted || self.training.is_empty();
        if self.evaluation.as_ref().is_some_and(fits) {
            return Ok(());
        }
        self.evaluation = None;
        let mut size = wanted;
        loop {
            match self.compile(&self.graphs.evaluation(size)?) {
                Ok(executable) => {
                    self.evaluation = Some((wanted, executable));
                    return Ok(());
                }
                Err(Error::OutOfMemory { .. }) if self.training.len() > 1 => self.training.truncate(1),
                Err(Error::OutOfMemory { .. }) if size > 1 => size = size.div_ceil(2),
                // Training gets its memory back when it goes on.
                Err(Error::OutOfMemory { .. }) if !self.training.is_empty() => {
                    self.training.clear();
                    size = wanted;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts first in `training` what runs `rows` rows, and compiles it where it is not kept: the micro-batch's size.
    fn compile_training(&mut self, rows: usize) -> Result<usize> {
        let mut pieces = self.micro_batch.pieces(rows, self.group);
        loop {
            let size = piece(rows, self.group, pieces);
            if let Some(found) = self.training.iter().position(|e| e.micro_batch() == size) {
                self.training[..=found].rotate_right(1);
                return Ok(size);
            }
            let graph = self.graphs.training(size)?;
            match self.compile(&graph) {
                Ok(executable) => {
                    self.training.insert(0, executable);
                    self.training.truncate(KEPT);
                    return Ok(size);
                }
                // Memory first goes to what is needed now, then to smaller micro-batches.
                Err(Error::OutOfMemory { .. }) if !self.training.is_empty() || self.evaluation.is_some() => {
                    self.training.clear();
                    self.evaluation = None;
                }
                Err(error @ (Error::OutOfMemory { .. } | Error::Limit { .. })) if size > self.group => {
                    log::warn!("a micro-batch of {size} does not fit, trying half: {error}");
                    pieces *= 2;
                }
                Err(error) => return Err(at_least(self.group, error)),
            }
        }
    }

    /// Prepares to run `rows` rows: those that it was prepared for or fewer, as a rule.
    fn prepare_training(&mut self, rows: usize) -> Result<()> {
        // A batch's last rows may be more than usual; to cut them where its usual micro-batch ends would cut a group.
        if rows > self.size && !self.size.is_multiple_of(self.group) {
            return self.compile_training(rows).map(drop);
        }
        // An evaluation took the memory, or the last rows were more than usual.
        if self.training.first().is_none_or(|usual| usual.micro_batch() != self.size) {
            self.size = self.compile_training(self.prepared)?;
        }
        Ok(())
    }

    fn report(&mut self, begin: Instant) -> Result<ShardReport> {
        let statistics = self.engine.statistics()?.into_iter().map(f64::from).collect();
        Ok(ShardReport { statistics, seconds: begin.elapsed().as_secs_f64(), kernels: self.engine.kernels() })
    }
}

impl Worker for GpuWorker {
    fn label(&self) -> String {
        self.engine.device().label().to_owned()
    }

    fn prepare(&mut self, rows: usize) -> Result<usize> {
        self.prepared = rows;
        self.size = self.compile_training(rows)?;
        Ok(self.size)
    }

    fn gradients(&mut self, shard: &Shard, sink: Option<Sink<'_>>) -> Result<ShardReport> {
        if self.prepared > 0 {
            self.prepare_training(shard.rows.len())?;
        }
        let begin = Instant::now();
        let executable = self.training.first_mut().ok_or_else(|| {
            Error::Training("a device was given samples before it was prepared for a micro-batch size".into())
        })?;
        let compression = if shard.exact { Compression::None } else { self.compression };
        // A step that is computed again: nobody has used what was handed out, and what rounding took away of it is in
        // the gradients once more.
        if compression != Compression::None && self.packed.take() == Some(shard.key.step) {
            self.engine.clear_residuals()?;
        }
        match sink {
            Some(sink) if compression != Compression::None => {
                self.packed = Some(shard.key.step);
                let scale = compression.scale(shard.weight);
                let (unpacked, trained) = (&mut self.unpacked, self.layout.trained_buckets());
                let mut unpack = |bucket: usize, bytes: &[u8]| {
                    if bucket >= trained {
                        return sink(bucket, bytes);
                    }
                    compression.unpack(bytes, scale, unpacked);
                    sink(bucket, bytemuck::cast_slice(unpacked))
                };
                Self::run(&mut self.engine, executable, shard, scale, Some(&mut unpack))?;
            }
            sink => Self::run(&mut self.engine, executable, shard, 0.0, sink)?,
        }
        self.report(begin)
    }

    fn evaluate(&mut self, shard: &Shard) -> Result<ShardReport> {
        let begin = Instant::now();
        self.prepare_evaluation(shard.rows.len())?;
        let (_, executable) = self.evaluation.as_mut().expect("it was prepared");
        Self::run(&mut self.engine, executable, shard, 0.0, None)?;
        self.report(begin)
    }

    fn lead(&mut self) -> Result<()> {
        match self.engine.lead(self.update.clone()) {
            // Memory first goes to what is needed now.
            Err(Error::OutOfMemory { .. }) if self.training.len() > 1 || self.evaluation.is_some() => {
                self.training.truncate(1);
                self.evaluation = None;
                self.engine.lead(self.update.clone())
            }
            outcome => outcome,
        }
    }

    fn follow(&mut self) {
        self.engine.follow();
    }

    fn update(&mut self, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        self.engine.update(update, sink)
    }

    fn write(&mut self, buffer: Buffer, values: &[f32]) -> Result<()> {
        if matches!(buffer, Buffer::Residual(_)) {
            // Of a snapshot, perhaps one from before the step that was packed last.
            self.packed = None;
        }
        self.engine.write(buffer, bytemuck::cast_slice(values))
    }

    fn clear_residuals(&mut self) -> Result<()> {
        self.packed = None;
        self.engine.clear_residuals()
    }

    fn fingerprints(&mut self) -> Result<Vec<u64>> {
        self.engine.fingerprints()
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<f32>> {
        Ok(bytemuck::pod_collect_to_vec(&self.engine.read(buffer)?))
    }
}

/// What is over a limit with a micro-batch of `group`, which cannot be smaller.
fn at_least(group: usize, mut error: Error) -> Error {
    let whole = format!(" (a micro-batch must hold batch norm's group of {group} samples)");
    match &mut error {
        Error::OutOfMemory { buffer, .. } if group > 1 => buffer.push_str(&whole),
        Error::Limit { what, .. } if group > 1 => what.push_str(&whole),
        _ => {}
    }
    error
}
