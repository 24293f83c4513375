//! Host-visible buffers that data passes through: made once, mapped again as soon as the device is done with them, so
//! that nothing is allocated in a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::device::{Device, Memory};
use crate::error::Result;
use crate::plan::Allocation;

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// A buffer that is the host's while it is mapped and the device's otherwise.
#[derive(Debug)]
pub(super) struct Staging {
    memory: Memory,
    mode: wgpu::MapMode,
    state: Arc<AtomicU8>,
    submission: Option<wgpu::SubmissionIndex>,
}

impl Staging {
    /// A buffer that the host writes and the device reads; it starts mapped.
    pub(super) fn upload(device: &Device, what: &Allocation) -> Result<Self> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        Self::new(device, what, usage, wgpu::MapMode::Write)
    }

    /// A buffer that the device writes and the host reads; it starts with the device.
    pub(super) fn download(device: &Device, what: &Allocation) -> Result<Self> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        Self::new(device, what, usage, wgpu::MapMode::Read)
    }

    fn new(device: &Device, what: &Allocation, usage: wgpu::BufferUsages, mode: wgpu::MapMode) -> Result<Self> {
        let mapped = mode == wgpu::MapMode::Write;
        let memory = device.allocate(what, usage, mapped)?;
        let state = Arc::new(AtomicU8::new(if mapped { MAPPED } else { PENDING }));
        Ok(Self { memory, mode, state, submission: None })
    }

    /// The buffer, to encode copies with.
    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        &self.memory.buffer
    }

    /// Asks for the buffer back once `submission`, which uses it, is done.
    pub(super) fn submitted(&mut self, submission: wgpu::SubmissionIndex) {
        self.state.store(PENDING, Ordering::Release);
        let state = self.state.clone();
        self.memory.buffer.map_async(self.mode, .., move |outcome| {
            state.store(if outcome.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        });
        self.submission = Some(submission);
    }

    /// Waits until the host has the buffer.
    fn wait(&mut self, device: &Device) -> Result<()> {
        if self.state.load(Ordering::Acquire) == PENDING {
            device.wait(self.submission.clone())?;
        }
        match self.state.load(Ordering::Acquire) {
            MAPPED => Ok(()),
            _ => Err(device.check().err().unwrap_or_else(|| device.error("a staging buffer cannot be mapped"))),
        }
    }

    /// Waits for the buffer and hands out a writer to fill it; then gives it to the device.
    pub(super) fn write(&mut self, device: &Device, fill: impl FnOnce(&mut wgpu::BufferViewMut)) -> Result<()> {
        self.wait(device)?;
        let mut view = self.memory.buffer.get_mapped_range_mut(..).map_err(|e| device.error(e.to_string()))?;
        fill(&mut view);
        drop(view);
        self.memory.buffer.unmap();
        Ok(())
    }

    /// Waits for what the device has written and shows it; then gives the buffer back to the device.
    pub(super) fn read<T>(&mut self, device: &Device, see: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.wait(device)?;
        let view = self.memory.buffer.get_mapped_range(..).map_err(|e| device.error(e.to_string()))?;
        let seen = see(&view);
        drop(view);
        self.memory.buffer.unmap();
        Ok(seen)
    }
}
