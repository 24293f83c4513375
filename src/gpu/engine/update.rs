//! What the lead does beside a follower: it holds the optimizer's state and applies updates.

use std::sync::Arc;

use super::{Engine, Sink};
use crate::error::Result;
use crate::gpu::clock::{Clock, Work, record_timed};
use crate::gpu::device::Memory;
use crate::gpu::program::Program;
use crate::optim::{NormOutcome, Update, UpdatePlan};
use crate::plan::Buffer;

/// What only the lead has.
#[derive(Debug)]
pub(super) struct Updater {
    plan: Arc<UpdatePlan>,
    pub(super) program: Program,
    pub(super) state: Vec<Vec<Memory>>,
    pub(super) norm: Memory,
    uniform: Memory,
    pub(super) uniform_group: wgpu::BindGroup,
    _partials: Memory,
}

impl Engine {
    /// Makes this device the lead; the optimizer's state starts at zero.
    ///
    /// # Errors
    /// When the device lacks the memory or fails.
    pub fn lead(&mut self, plan: Arc<UpdatePlan>) -> Result<()> {
        let wanted = plan.storage(&self.layout);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let device = self.device.clone();
        let mut state = Vec::new();
        for moment in &wanted.state {
            state.push(moment.iter().map(|a| device.allocate(a, usage, false)).collect::<Result<Vec<_>>>()?);
        }
        let partials = device.allocate(&wanted.partials, usage, false)?;
        device.queue.write_buffer(&partials.buffer, 0, bytemuck::cast_slice(&plan.chunks));
        let norm = device.allocate(&wanted.norm, usage, false)?;
        let uniform_usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let uniform = device.allocate(&wanted.uniform, uniform_usage, false)?;
        let find = |buffer: Buffer| match buffer {
            Buffer::State { moment, bucket } => state.get(moment)?.get(bucket).map(|m: &Memory| &m.buffer),
            Buffer::Partials => Some(&partials.buffer),
            Buffer::Norm => Some(&norm.buffer),
            _ => self.shared(buffer),
        };
        let program = Program::new(&device, &plan.dispatches, Some(&wanted.sizes), find)?;
        let uniform_group = device.uniform_group(&uniform.buffer);
        self.update = Some(Updater { plan, program, state, norm, uniform, uniform_group, _partials: partials });
        Ok(())
    }

    /// Gives up the lead and frees the optimizer's state.
    pub fn follow(&mut self) {
        self.update = None;
    }

    /// Applies one update; with a `sink` each bucket of parameters is handed out as soon as it is updated.
    ///
    /// # Errors
    /// When this device is not the lead or fails.
    pub fn update(&mut self, update: &Update, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        self.with_updater(update, |engine, updater| engine.update_with(updater, sink))
    }

    /// Does `work` with what the lead has, the uniform being filled with `update`.
    pub(super) fn with_updater<T>(
        &mut self,
        update: &Update,
        work: impl FnOnce(&mut Self, &Updater) -> Result<T>,
    ) -> Result<T> {
        let updater = self.update.take().ok_or_else(|| self.device.error("this device is not the lead"))?;
        self.device.queue.write_buffer(&updater.uniform.buffer, 0, bytemuck::bytes_of(update));
        let outcome = work(self, &updater);
        self.update = Some(updater);
        outcome
    }

    fn update_with(&mut self, updater: &Updater, sink: Option<Sink<'_>>) -> Result<NormOutcome> {
        let mut encoder = self.encoder();
        self.clock.iter_mut().for_each(Clock::restart);
        let work = Work { name: "update", rows: None };
        match sink {
            Some(sink) => {
                let ready = &updater.plan.ready;
                let whole = std::mem::replace(&mut encoder, self.encoder());
                self.stream(whole, &updater.uniform_group, &updater.program, ready, Buffer::Parameter, work)?;
                self.drain(ready, Buffer::Parameter, sink)?;
            }
            None => {
                record_timed(&mut encoder, Some(&updater.uniform_group), &updater.program, &mut self.clock, work);
            }
        }
        let norm = &updater.norm.buffer;
        encoder.copy_buffer_to_buffer(norm, 0, self.report.buffer(), 0, norm.size());
        self.timed_report(encoder, |bytes| bytemuck::pod_read_unaligned(&bytes[..size_of::<NormOutcome>()]))
    }
}
