//! Dispatches prepared on a device: kernels compiled, bind groups built, sizes uploaded.

use super::device::{Device, Memory};
use crate::error::Result;
use crate::plan::{ALIGNMENT, Allocation, Buffer, Dispatch, sizes_of};

/// A list of dispatches with their driver objects, and the sizes of their kernels.
#[derive(Debug)]
pub(super) struct Program {
    prepared: Vec<Prepared>,
    _sizes: Option<Memory>,
}

impl Program {
    /// Prepares `dispatches`; `sizes` is the buffer of their kernels' sizes, to be left out where none has any, and
    /// `find` finds the planned buffers.
    pub(super) fn new<'a>(
        device: &Device,
        dispatches: &[Dispatch],
        sizes: Option<&Allocation>,
        find: impl Fn(Buffer) -> Option<&'a wgpu::Buffer>,
    ) -> Result<Self> {
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let sizes = sizes.map(|what| device.allocate(what, usage, false)).transpose()?;
        if let Some(memory) = &sizes {
            device.queue.write_buffer(&memory.buffer, 0, &sizes_of(dispatches));
        }
        device.compile(dispatches.iter().map(|dispatch| &dispatch.kernel))?;
        let prepare = |(index, dispatch): (usize, &Dispatch)| {
            let sizes = sizes.as_ref().map(|memory| wgpu::BufferBinding {
                buffer: &memory.buffer,
                offset: index as u64 * ALIGNMENT,
                size: std::num::NonZeroU64::new(ALIGNMENT),
            });
            Prepared::new(device, dispatch, sizes, &find)
        };
        let prepared = dispatches.iter().enumerate().map(prepare).collect::<Result<Vec<_>>>()?;
        Ok(Self { prepared, _sizes: sizes })
    }
}

impl std::ops::Deref for Program {
    type Target = [Prepared];

    fn deref(&self) -> &[Prepared] {
        &self.prepared
    }
}

/// A dispatch with its driver objects.
#[derive(Debug)]
pub(super) struct Prepared {
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
    groups: [u32; 3],
}

impl Prepared {
    fn new<'a>(
        device: &Device,
        dispatch: &Dispatch,
        sizes: Option<wgpu::BufferBinding<'_>>,
        find: impl Fn(Buffer) -> Option<&'a wgpu::Buffer>,
    ) -> Result<Self> {
        let pipeline = device.pipeline(&dispatch.kernel)?;
        let mut entries = Vec::new();
        for (binding, view) in dispatch.views.iter().enumerate() {
            let buffer = find(view.buffer).ok_or_else(|| device.error(format!("{} is not allocated", view.buffer)))?;
            entries.push(wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: view.offset,
                    size: std::num::NonZeroU64::new(view.bytes),
                }),
            });
        }
        if !dispatch.kernel.sizes.is_empty() {
            let missing =
                || device.error(format!("kernel {} has sizes and no buffer for them", dispatch.kernel.label()));
            let resource = wgpu::BindingResource::Buffer(sizes.ok_or_else(missing)?);
            entries.push(wgpu::BindGroupEntry { binding: dispatch.views.len() as u32, resource });
        }
        let bindings = device.inner.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(&dispatch.kernel.label()),
            layout: &device.storage_layout(&dispatch.kernel),
            entries: &entries,
        });
        device.check()?;
        Ok(Self { pipeline, bindings, groups: dispatch.groups })
    }
}

/// Records `dispatches` into one compute pass; `uniform` is needed where their kernels read one, `times` takes begin
/// and end.
pub(super) fn record(
    encoder: &mut wgpu::CommandEncoder,
    uniform: Option<&wgpu::BindGroup>,
    dispatches: &[Prepared],
    times: Option<wgpu::ComputePassTimestampWrites<'_>>,
) {
    let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes: times };
    let mut pass = encoder.begin_compute_pass(&descriptor);
    if let Some(uniform) = uniform {
        pass.set_bind_group(1, uniform, &[]);
    }
    for prepared in dispatches {
        pass.set_pipeline(&prepared.pipeline);
        pass.set_bind_group(0, &prepared.bindings, &[]);
        let [x, y, z] = prepared.groups;
        pass.dispatch_workgroups(x, y, z);
    }
}
