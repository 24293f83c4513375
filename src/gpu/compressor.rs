//! What packs gradients before they are read back. See [`crate::plan::Compression`].

use super::clock::{Clock, Work, record_timed};
use super::device::{Device, Memory};
use super::program::Program;
use crate::error::Result;
use crate::plan::{Buffer, Storage, compressions};

/// Residuals, packed buckets and the kernels between them.
#[derive(Debug)]
pub(super) struct Compressor {
    program: Program,
    residuals: Vec<Memory>,
    packed: Vec<Memory>,
}

impl Compressor {
    /// Allocates what `storage` lists for it, residuals at zero; `None` where nothing is packed.
    pub(super) fn new<'a>(
        device: &Device,
        storage: &Storage,
        shared: impl Fn(Buffer) -> Option<&'a wgpu::Buffer>,
    ) -> Result<Option<Self>> {
        if storage.packed.is_empty() {
            return Ok(None);
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let allocate = |list: &[crate::plan::Allocation]| {
            list.iter().map(|what| device.allocate(what, usage, false)).collect::<Result<Vec<_>>>()
        };
        let (residuals, packed) = (allocate(&storage.residuals)?, allocate(&storage.packed)?);
        let find = |buffer: Buffer| match buffer {
            Buffer::Residual(bucket) => residuals.get(bucket).map(|m: &Memory| &m.buffer),
            Buffer::Packed(bucket) => packed.get(bucket).map(|m: &Memory| &m.buffer),
            _ => shared(buffer),
        };
        let dispatches = compressions(storage.compression, &storage.layout, device.target())?;
        let program = Program::new(device, &dispatches, storage.packing.as_ref(), find)?;
        Ok(Some(Self { program, residuals, packed }))
    }

    /// Records the packing of a bucket; `uniform` holds the step, the clock times it as `work`.
    pub(super) fn pack(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        uniform: &wgpu::BindGroup,
        bucket: usize,
        clock: &mut Option<Clock>,
        work: Work,
    ) {
        record_timed(encoder, Some(uniform), &self.program[bucket..=bucket], clock, work);
    }

    /// Records the clearing of what was held back.
    pub(super) fn clear(&self, encoder: &mut wgpu::CommandEncoder) {
        self.residuals.iter().for_each(|memory| encoder.clear_buffer(&memory.buffer, 0, None));
    }

    /// A residual or a packed bucket.
    pub(super) fn buffer(&self, buffer: Buffer) -> Option<&Memory> {
        match buffer {
            Buffer::Residual(bucket) => self.residuals.get(bucket),
            Buffer::Packed(bucket) => self.packed.get(bucket),
            _ => None,
        }
    }
}
