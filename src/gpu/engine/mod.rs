//! The executor: one model's parameters, gradients and optimizer state on one device, and the runs over them.

mod each;
mod transfers;
mod update;

use std::sync::Arc;

pub use self::each::TimedBy;
use self::update::Updater;
use super::clock::{Clock, Work, record_timed};
use super::compressor::Compressor;
use super::device::{Device, Memory};
use super::executable::Executable;
use super::program::{Prepared, Program};
use super::staging::Staging;
use crate::error::Result;
use crate::kernel::Step;
use crate::optim::UpdatePlan;
use crate::plan::{ALIGNMENT, Buffer, Layout, Plan, Storage, fingerprints};

/// What a device does beside computing gradients.
#[derive(Debug, Clone)]
pub enum Duty {
    /// Applies updates and holds the optimizer's state.
    Lead(Arc<UpdatePlan>),
    /// Receives updated parameters.
    Follower,
    /// Runs forward only: no gradients.
    Inference,
}

/// One micro-batch for a run.
#[derive(Debug, Clone, Copy)]
pub struct MicroBatch<'a> {
    /// Counters; `valid` is the number of rows given.
    pub step: Step,
    /// Each input's rows, in the plan's order.
    pub inputs: &'a [&'a [u8]],
}

/// Sums over the micro-batches since the last one that was the first of a step.
pub(super) type Report = Vec<f32>;

/// What a run hands out bucket by bucket, while later buckets are still being computed.
pub(super) type Sink<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// One model's parameters, gradients and optimizer state on one device, and the runs over them.
#[derive(Debug)]
pub struct Engine {
    device: Arc<Device>,
    layout: Arc<Layout>,
    parameters: Vec<Memory>,
    gradients: Vec<Memory>,
    statistics: Memory,
    update: Option<Updater>,
    downloads: Vec<Staging>,
    uploads: Vec<Staging>,
    report: Staging,
    statistic_count: usize,
    fingerprint: Option<Fingerprint>,
    compressor: Option<Compressor>,
    clock: Option<Clock>,
}

/// What computes the fingerprints, where there are other devices to compare with.
#[derive(Debug)]
struct Fingerprint {
    memory: Memory,
    program: Program,
}

impl Engine {
    /// Allocates what `storage` lists and prepares the update for a lead.
    ///
    /// # Errors
    /// When the device lacks the memory or fails.
    pub fn new(device: Arc<Device>, storage: &Storage, duty: &Duty) -> Result<Self> {
        let bucket_usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let allocate = |list: &[crate::plan::Allocation]| {
            list.iter().map(|what| device.allocate(what, bucket_usage, false)).collect::<Result<Vec<_>>>()
        };
        let parameters = allocate(&storage.parameters)?;
        let gradients = allocate(&storage.gradients)?;
        let statistics = device.allocate(&storage.statistics, bucket_usage, false)?;
        let downloads = storage.downloads.iter().map(|a| Staging::download(&device, a)).collect::<Result<_>>()?;
        let uploads = storage.uploads.iter().map(|a| Staging::upload(&device, a)).collect::<Result<_>>()?;
        let report = Staging::download(&device, &storage.report)?;
        let mut engine = Self {
            layout: storage.layout.clone(),
            statistic_count: storage.statistic_count,
            parameters,
            gradients,
            statistics,
            update: None,
            downloads,
            uploads,
            report,
            fingerprint: None,
            compressor: None,
            clock: Clock::new(&device, storage)?,
            device,
        };
        if let Some(what) = &storage.fingerprints {
            let memory = engine.device.allocate(what, bucket_usage, false)?;
            let find = |buffer: Buffer| match buffer {
                Buffer::Fingerprints => Some(&memory.buffer),
                _ => engine.shared(buffer),
            };
            let dispatches = fingerprints(&engine.layout, engine.device.target())?;
            let program = Program::new(&engine.device, &dispatches, None, find)?;
            engine.fingerprint = Some(Fingerprint { memory, program });
        }
        engine.compressor = Compressor::new(&engine.device, storage, |buffer| engine.shared(buffer))?;
        if let Duty::Lead(plan) = duty {
            engine.lead(plan.clone())?;
        }
        Ok(engine)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Allocates and compiles what `plan` needs.
    ///
    /// # Errors
    /// When the device lacks the memory or fails.
    pub fn compile(&self, plan: Arc<Plan>) -> Result<Executable> {
        Executable::new(&self.device, plan, |buffer| self.shared(buffer))
    }

    fn shared(&self, buffer: Buffer) -> Option<&wgpu::Buffer> {
        let memory = match buffer {
            Buffer::Parameter(b) => self.parameters.get(b),
            Buffer::Gradient(b) => self.gradients.get(b),
            Buffer::Statistics => Some(&self.statistics),
            Buffer::State { moment, bucket } => self.update.as_ref()?.state.get(moment)?.get(bucket),
            Buffer::Norm => Some(&self.update.as_ref()?.norm),
            Buffer::Residual(_) | Buffer::Packed(_) => self.compressor.as_ref()?.buffer(buffer),
            _ => None,
        };
        memory.map(|m| &m.buffer)
    }

    fn find(&self, buffer: Buffer) -> Result<&wgpu::Buffer> {
        self.shared(buffer).ok_or_else(|| self.device.error(format!("{buffer} is not allocated on this device")))
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.inner.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn submit(&self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        self.device.queue.submit([encoder.finish()])
    }

    /// Queues one micro-batch. With a `sink`, which the last micro-batch of a shard takes, each bucket of gradients is
    /// handed out as soon as the backward pass has finished it: packed where the step has a scale for that, and it is
    /// no sum for running statistics.
    ///
    /// # Errors
    /// When the inputs are not the plan's or the device fails.
    pub fn run(&mut self, executable: &mut Executable, batch: &MicroBatch<'_>, sink: Option<Sink<'_>>) -> Result<()> {
        let mut encoder = self.encoder();
        executable.load(&self.device, &mut encoder, &batch.step, batch.inputs)?;
        if batch.step.first != 0 {
            self.clock.iter_mut().for_each(Clock::restart);
        }
        let work = Work { name: "micro-batch", rows: Some(batch.step.valid as usize) };
        let Some(sink) = sink else {
            record_timed(&mut encoder, Some(&executable.uniform), &executable.program, &mut self.clock, work);
            let submission = self.submit(encoder);
            executable.loaded(submission);
            return self.device.check();
        };
        let ready = executable.plan.ready.clone();
        let packed = if batch.step.gradient_scale == 0.0 { 0 } else { self.layout.trained_buckets() };
        let kind = |bucket| if bucket < packed { Buffer::Packed(bucket) } else { Buffer::Gradient(bucket) };
        let first = self.stream(encoder, &executable.uniform, &executable.program, &ready, kind, work)?;
        executable.loaded(first);
        self.drain(&ready, kind, sink)
    }

    /// Forgets what packing has held back of earlier gradients.
    ///
    /// # Errors
    /// When the device fails.
    pub fn clear_residuals(&mut self) -> Result<()> {
        let mut encoder = self.encoder();
        self.compressor.iter().for_each(|compressor| compressor.clear(&mut encoder));
        self.submit(encoder);
        self.device.check()
    }

    /// Submits `prepared` in pieces, timed as `work`, each followed by the copies of the buckets that are complete
    /// then. The first piece's submission.
    fn stream(
        &mut self,
        first: wgpu::CommandEncoder,
        uniform: &wgpu::BindGroup,
        prepared: &[Prepared],
        ready: &[usize],
        kind: impl Fn(usize) -> Buffer,
        work: Work,
    ) -> Result<wgpu::SubmissionIndex> {
        let mut encoder = first;
        let mut done = 0;
        let mut submission = None;
        let order = completion_order(ready);
        for (position, &bucket) in order.iter().enumerate() {
            let end = if position + 1 == order.len() { prepared.len() } else { ready[bucket] };
            record_timed(&mut encoder, Some(uniform), &prepared[done..end], &mut self.clock, work);
            done = end;
            let buffer = kind(bucket);
            if let (Buffer::Packed(_), Some(compressor)) = (buffer, &self.compressor) {
                compressor.pack(&mut encoder, uniform, bucket, &mut self.clock, work);
            }
            let source = self.find(buffer)?;
            encoder.copy_buffer_to_buffer(source, 0, self.downloads[bucket].buffer(), 0, source.size());
            let index = self.submit(std::mem::replace(&mut encoder, self.encoder()));
            submission.get_or_insert(index.clone());
            self.downloads[bucket].submitted(index);
        }
        self.device.check()?;
        submission.ok_or_else(|| self.device.error("the model has no parameters"))
    }

    fn drain(&mut self, ready: &[usize], kind: impl Fn(usize) -> Buffer, sink: Sink<'_>) -> Result<()> {
        for bucket in completion_order(ready) {
            let len = self.find(kind(bucket))?.size() as usize;
            self.downloads[bucket].read(&self.device, |bytes| sink(bucket, &bytes[..len]))??;
        }
        Ok(())
    }

    /// Submits `encoder`, whose last command puts something into the report, behind that what the clock has noted, and
    /// reads it.
    fn timed_report<T>(&mut self, mut encoder: wgpu::CommandEncoder, see: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.clock.iter().for_each(|clock| clock.resolve(&mut encoder, self.report.buffer()));
        let submission = self.submit(encoder);
        self.report.submitted(submission);
        self.report.read(&self.device, |bytes| {
            self.clock.iter_mut().for_each(|clock| clock.read(bytes, self.device.label()));
            see(bytes)
        })
    }

    /// Waits for all that was queued and reads the statistics' sums.
    ///
    /// # Errors
    /// When the device fails.
    pub fn statistics(&mut self) -> Result<Report> {
        let mut encoder = self.encoder();
        let source = &self.statistics.buffer;
        encoder.copy_buffer_to_buffer(source, 0, self.report.buffer(), 0, source.size());
        let count = self.statistic_count;
        self.timed_report(encoder, |bytes| {
            (0..count).map(|i| bytemuck::pod_read_unaligned(&bytes[i * ALIGNMENT as usize..][..4])).collect()
        })
    }

    /// Seconds that the device's own clock counted in the kernels of what [`Engine::statistics`] or [`Engine::update`]
    /// reported last: in all micro-batches since the first, or in the update. `None` where there is no clock, or it
    /// made no sense.
    pub fn kernels(&self) -> Option<f64> {
        self.clock.as_ref()?.kernels()
    }
}

/// Buckets in the order in which they are complete.
fn completion_order(ready: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ready.len()).collect();
    order.sort_by_key(|&bucket| ready[bucket]);
    order
}
