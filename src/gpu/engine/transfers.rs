//! Buckets, outputs and fingerprints on their way between device and host, outside of a step.

use super::Engine;
use crate::error::Result;
use crate::gpu::executable::Executable;
use crate::gpu::program::record;
use crate::plan::{ALIGNMENT, Buffer, FINGERPRINT_BYTES};
use crate::tensor::TensorType;

impl Engine {
    /// A fingerprint of each parameter bucket; empty on a device that has no peers.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fingerprints(&mut self) -> Result<Vec<u64>> {
        let Some(fingerprint) = &self.fingerprint else { return Ok(Vec::new()) };
        let source = &fingerprint.memory.buffer;
        let mut encoder = self.encoder();
        encoder.clear_buffer(source, 0, None);
        record(&mut encoder, None, &fingerprint.program, None);
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
