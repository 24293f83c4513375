//! The executor: one model's parameters, gradients and optimizer state on one device, and the runs over them.

use std::sync::Arc;

use super::compressor::Compressor;
use super::device::{Device, Memory};
use super::executable::{Executable, Prepared, record};
use super::staging::Staging;
use crate::error::Result;
use crate::op::Step;
use crate::optim::{NormOutcome, Update, UpdatePlan};
use crate::plan::{ALIGNMENT, Buffer, FINGERPRINT_BYTES, Layout, Plan, Storage, fingerprints};
use crate::tensor::TensorType;

/// What a device does beside computing gradients.
#[derive(Debug, Clone)]
pub enum Role {
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
    /// Whether sums start anew with this micro-batch.
    pub first: bool,
}

/// Sums over the micro-batches since the last `first`.
pub type Report = Vec<f32>;

/// What a run hands out bucket by bucket, while later buckets are still being computed.
pub type Sink<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// See the module's documentation.
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
}

/// What computes the fingerprints, where there are other devices to compare with.
#[derive(Debug)]
struct Fingerprint {
    memory: Memory,
    prepared: Vec<Prepared>,
}

/// What only the lead has.
#[derive(Debug)]
struct Updater {
    plan: Arc<UpdatePlan>,
    prepared: Vec<Prepared>,
    state: Vec<Vec<Memory>>,
    norm: Memory,
    uniform: Memory,
    uniform_group: wgpu::BindGroup,
    _partials: Memory,
}

impl Engine {
    /// Allocates what `storage` lists and prepares the update for a lead.
    ///
    /// # Errors
    /// When the device has not the memory or fails.
    pub fn new(device: Arc<Device>, storage: &Storage, role: &Role) -> Result<Self> {
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
            device,
        };
        if let Some(what) = &storage.fingerprints {
            let memory = engine.device.allocate(what, bucket_usage, false)?;
            let find = |buffer: Buffer| match buffer {
                Buffer::Fingerprints => Some(&memory.buffer),
                _ => engine.shared(buffer),
            };
            let dispatches = fingerprints(&engine.layout, engine.device.target())?;
            let prepared =
                dispatches.iter().map(|d| Prepared::new(&engine.device, d, find)).collect::<Result<Vec<_>>>()?;
            engine.fingerprint = Some(Fingerprint { memory, prepared });
        }
        engine.compressor = Compressor::new(&engine.device, storage, |buffer| engine.shared(buffer))?;
        if let Role::Lead(plan) = role {
            engine.lead(plan.clone())?;
        }
        Ok(engine)
    }

    /// Makes this device the lead; the optimizer's state starts at zero.
    ///
    /// # Errors
    /// When the device has not the memory or fails.
    pub fn lead(&mut self, plan: Arc<UpdatePlan>) -> Result<()> {
        let wanted = Storage::for_update(&self.layout, plan.moments.len(), plan.partials);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let device = self.device.clone();
        let mut state = Vec::new();
        for moment in &wanted.state {
            state.push(moment.iter().map(|a| device.allocate(a, usage, false)).collect::<Result<Vec<_>>>()?);
        }
        let partials = device.allocate(&wanted.partials, usage, false)?;
        let norm = device.allocate(&wanted.norm, usage, false)?;
        let uniform_usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let uniform = device.allocate(&wanted.uniform, uniform_usage, false)?;
        let find = |buffer: Buffer| match buffer {
            Buffer::State { moment, bucket } => state.get(moment)?.get(bucket).map(|m: &Memory| &m.buffer),
            Buffer::Partials => Some(&partials.buffer),
            Buffer::Norm => Some(&norm.buffer),
            _ => self.shared(buffer),
        };
        let prepared = plan.dispatches.iter().map(|d| Prepared::new(&device, d, find)).collect::<Result<Vec<_>>>()?;
        let uniform_group = device.uniform_group(&uniform.buffer);
        self.update = Some(Updater { plan, prepared, state, norm, uniform, uniform_group, _partials: partials });
        Ok(())
    }

    /// Gives up the lead and frees the optimizer's state.
    pub fn follow(&mut self) {
        self.update = None;
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Allocates and compiles what `plan` needs.
    ///
    /// # Errors
    /// When the device has not the memory or fails.
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
    /// handed out as soon as the backward pass has finished it: packed where the step has a scale for that, and it is no sum
    /// for running statistics.
    ///
    /// # Errors
    /// When the inputs are not the plan's or the device fails.
    pub fn run(&mut self, executable: &mut Executable, batch: &MicroBatch<'_>, sink: Option<Sink<'_>>) -> Result<()> {
        let mut encoder = self.encoder();
        executable.load(&self.device, &mut encoder, &batch.step, batch.inputs)?;
        if batch.first {
            self.gradients.iter().for_each(|m| encoder.clear_buffer(&m.buffer, 0, None));
            encoder.clear_buffer(&self.statistics.buffer, 0, None);
        }
        let Some(sink) = sink else {
            record(&mut encoder, Some(&executable.uniform), &executable.prepared);
            let submission = self.submit(encoder);
            executable.loaded(submission);
            return self.device.check();
        };
        let ready = executable.plan.ready.clone();
        let packed = if batch.step.gradient_scale == 0.0 { 0 } else { self.layout.trained_buckets() };
        let kind = |bucket| if bucket < packed { Buffer::Packed(bucket) } else { Buffer::Gradient(bucket) };
        let first = self.stream(encoder, &executable.uniform, &executable.prepared, &ready, kind)?;
        executable.loaded(first);
        self.drain(&ready, kind, sink)
    }

    /// Submits `prepared` in pieces, each followed by the copies of the buckets that are complete then. The first piece's
    /// submission.
    fn stream(
        &mut self,
        first: wgpu::CommandEncoder,
        uniform: &wgpu::BindGroup,
        prepared: &[Prepared],
        ready: &[usize],
        kind: impl Fn(usize) -> Buffer,
    ) -> Result<wgpu::SubmissionIndex> {
        let mut encoder = first;
        let mut done = 0;
        let mut submission = None;
        let order = completion_order(ready);
        for (position, &bucket) in order.iter().enumerate() {
            let end = if position + 1 == order.len() { prepared.len() } else { ready[bucket] };
            record(&mut encoder, Some(uniform), &prepared[done..end]);
            done = end;
            let buffer = kind(bucket);
            let source = self.find(buffer)?;
            if let (Buffer::Packed(_), Some(compressor)) = (buffer, &self.compressor) {
                compressor.pack(&mut encoder, uniform, bucket);
            }
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

    /// Applies one update; with a `sink` each bucket of parameters is handed out as soon as it is updated.
    ///
    /// # Errors
    /// When this device is not the lead or fails.
    pub fn update(&mut self, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        let updater = self.update.take().ok_or_else(|| self.device.error("this device is not the lead"))?;
        let outcome = self.update_with(&updater, update, sink);
        self.update = Some(updater);
        outcome
    }

    fn update_with(&mut self, updater: &Updater, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        self.device.queue.write_buffer(&updater.uniform.buffer, 0, bytemuck::bytes_of(update));
        let mut encoder = self.encoder();
        match sink {
            Some(sink) => {
                let ready = &updater.plan.ready;
                let whole = std::mem::replace(&mut encoder, self.encoder());
                self.stream(whole, &updater.uniform_group, &updater.prepared, ready, Buffer::Parameter)?;
                self.drain(ready, Buffer::Parameter, sink)?;
            }
            None => record(&mut encoder, Some(&updater.uniform_group), &updater.prepared),
        }
        let norm = &updater.norm.buffer;
        encoder.copy_buffer_to_buffer(norm, 0, self.report.buffer(), 0, norm.size());
        let submission = self.submit(encoder);
        self.report.submitted(submission);
        self.report.read(&self.device, |bytes| bytemuck::pod_read_unaligned(&bytes[..size_of::<NormOutcome>()]))
    }

    /// Waits for all that was queued and reads the statistics' sums.
    ///
    /// # Errors
    /// When the device fails.
    pub fn statistics(&mut self) -> Result<Report> {
        let mut encoder = self.encoder();
        let source = &self.statistics.buffer;
        encoder.copy_buffer_to_buffer(source, 0, self.report.buffer(), 0, source.size());
        let submission = self.submit(encoder);
        self.report.submitted(submission);
        let count = self.statistic_count;
        self.report.read(&self.device, |bytes| {
            (0..count).map(|i| bytemuck::pod_read_unaligned(&bytes[i * ALIGNMENT as usize..][..4])).collect()
        })
    }

    /// A fingerprint of each parameter bucket; empty on a device that has no peers.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fingerprints(&mut self) -> Result<Vec<u64>> {
        let Some(fingerprint) = &self.fingerprint else { return Ok(Vec::new()) };
        let source = &fingerprint.memory.buffer;
        let mut encoder = self.encoder();
        encoder.clear_buffer(source, 0, None);
        record(&mut encoder, None, &fingerprint.prepared);
        encoder.copy_buffer_to_buffer(source, 0, self.report.buffer(), 0, source.size());
        let submission = self.submit(encoder);
        self.report.submitted(submission);
        let count = self.layout.buckets().len();
        self.report.read(&self.device, |bytes| {
            let at = |i: usize| &bytes[i * ALIGNMENT as usize..][..FINGERPRINT_BYTES as usize];
            (0..count).map(|i| bytemuck::pod_read_unaligned(at(i))).collect()
        })
    }

    /// Reads the outputs of the last run, each as its type and bytes.
    ///
    /// # Errors
    /// When the device fails.
    pub fn outputs(&mut self, executable: &mut Executable) -> Result<Vec<(TensorType, Vec<u8>)>> {
        let Some(mut staging) = executable.outputs.take() else { return Ok(Vec::new()) };
        let plan = executable.plan.clone();
        let ranges = plan.output_ranges();
        let mut encoder = self.encoder();
        for (output, range) in plan.outputs.iter().zip(&ranges) {
            let source = match executable.buffer(output.view.buffer) {
                Some(buffer) => buffer,
                None => self.find(output.view.buffer)?,
            };
            let bytes = range.end - range.start;
            encoder.copy_buffer_to_buffer(source, output.view.offset, staging.buffer(), range.start, bytes);
        }
        let submission = self.submit(encoder);
        staging.submitted(submission);
        let read = staging.read(&self.device, |bytes| {
            let slice = |r: &std::ops::Range<u64>| bytes[r.start as usize..r.end as usize].to_vec();
            plan.outputs.iter().zip(&ranges).map(|(o, range)| (o.ty.clone(), slice(range))).collect()
        });
        executable.outputs = Some(staging);
        read
    }

    /// Overwrites a bucket.
    ///
    /// # Errors
    /// When the buffer is not on this device, has another size, or the device fails.
    pub fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<()> {
        let target = self.find(buffer)?.clone();
        if bytes.len() as u64 != target.size() {
            return Err(self.device.error(format!("{buffer} has {} bytes, got {}", target.size(), bytes.len())));
        }
        let count = self.uploads.len();
        let staging = &mut self.uploads[bucket_of(buffer) % count];
        staging.write(&self.device, |view| view.slice(..bytes.len()).copy_from_slice(bytes))?;
        let mut encoder = self.device.inner.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(staging.buffer(), 0, &target, 0, target.size());
        staging.submitted(self.device.queue.submit([encoder.finish()]));
        self.device.check()
    }

    /// Waits for all that was queued and reads a bucket.
    ///
    /// # Errors
    /// When the buffer is not on this device, or the device fails.
    pub fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>> {
        let source = self.find(buffer)?.clone();
        let mut encoder = self.encoder();
        let count = self.downloads.len();
        let staging = &mut self.downloads[bucket_of(buffer) % count];
        encoder.copy_buffer_to_buffer(&source, 0, staging.buffer(), 0, source.size());
        staging.submitted(self.device.queue.submit([encoder.finish()]));
        staging.read(&self.device, |bytes| bytes[..source.size() as usize].to_vec())
    }
}

/// Buckets in the order in which they are complete.
fn completion_order(ready: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ready.len()).collect();
    order.sort_by_key(|&bucket| ready[bucket]);
    order
}

fn bucket_of(buffer: Buffer) -> usize {
    match buffer {
        Buffer::Parameter(bucket)
        | Buffer::Gradient(bucket)
        | Buffer::Residual(bucket)
        | Buffer::Packed(bucket)
        | Buffer::State { bucket, .. } => bucket,
        _ => 0,
    }
}
