//! A plan prepared on a device: its buffers allocated, its kernels compiled, its bind groups built. Running it creates
//! nothing.

use std::sync::Arc;

use super::device::{Device, Memory};
use super::program::Program;
use super::staging::Staging;
use crate::error::Result;
use crate::kernel::LARGEST_SIZE;
use crate::kernel::Step;
use crate::plan::{Allocation, Buffer, Plan, sizes};

/// Upload buffers of an executable: while the device reads one, the host fills the other.
const RING: usize = 2;

/// A plan made ready on a device: its buffers allocated, its kernels compiled, its bind groups built. Running it
/// creates nothing.
#[derive(Debug)]
pub struct Executable {
    pub(super) plan: Arc<Plan>,
    pub(super) program: Program,
    pub(super) uniform: wgpu::BindGroup,
    pub(super) outputs: Option<Staging>,
    slots: Vec<Memory>,
    inputs: Vec<Memory>,
    carried: Vec<Memory>,
    step: Memory,
    ring: [Staging; RING],
    next: usize,
}

impl Executable {
    pub(super) fn new<'a>(
        device: &Device,
        plan: Arc<Plan>,
        shared: impl Fn(Buffer) -> Option<&'a wgpu::Buffer>,
    ) -> Result<Self> {
        let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let mut slots = Vec::new();
        for (index, &bytes) in plan.slots.iter().enumerate() {
            slots.push(device.allocate(&Allocation::of(Buffer::Slot(index), bytes), storage, false)?);
        }
        let mut inputs = Vec::new();
        for (index, input) in plan.inputs.iter().enumerate() {
            let what = Allocation::of(Buffer::Input(index), input.ty.bytes() as u64);
            let memory = device.allocate(&what, storage, false)?;
            if let Some(constant) = &input.constant {
                device.queue.write_buffer(&memory.buffer, 0, constant.bytes());
            }
            inputs.push(memory);
        }
        let mut carried = Vec::new();
        for (index, &bytes) in plan.carried.iter().enumerate() {
            carried.push(device.allocate(&Allocation::of(Buffer::Carried(index), bytes), storage, false)?);
        }
        let uniform_usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let step = device.allocate(&plan.step_uniform(), uniform_usage, false)?;
        let upload = || Staging::upload(device, &plan.upload());
        let ring = [upload()?, upload()?];
        let outputs = plan.download().map(|what| Staging::download(device, &what)).transpose()?;

        let find = |buffer: Buffer| match buffer {
            Buffer::Slot(i) => slots.get(i).map(|m| &m.buffer),
            Buffer::Input(i) => inputs.get(i).map(|m| &m.buffer),
            Buffer::Carried(i) => carried.get(i).map(|m| &m.buffer),
            _ => shared(buffer),
        };
        let program = Program::new(device, &plan.dispatches, Some(&sizes(plan.dispatches.len())), find)?;
        let uniform = device.uniform_group(&step.buffer);
        Ok(Self { plan, program, uniform, outputs, slots, inputs, carried, step, ring, next: 0 })
    }

    /// Rows of a micro-batch.
    pub fn micro_batch(&self) -> usize {
        self.plan.micro_batch
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Fills all slots with NaN, so that a test sees what no kernel has written.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn poison(&self, device: &Device) -> Result<()> {
        for slot in &self.slots {
            device.queue.write_buffer(&slot.buffer, 0, &vec![0xff; slot.buffer.size() as usize]);
        }
        device.check()
    }

    /// The buffer of a slot or an input.
    pub(super) fn buffer(&self, buffer: Buffer) -> Option<&wgpu::Buffer> {
        match buffer {
            Buffer::Slot(i) => self.slots.get(i).map(|m| &m.buffer),
            Buffer::Input(i) => self.inputs.get(i).map(|m| &m.buffer),
            Buffer::Carried(i) => self.carried.get(i).map(|m| &m.buffer),
            _ => None,
        }
    }

    /// Fills the next upload buffer with a micro-batch and records its copies to where kernels read it. Rows beyond
    /// `step.valid` repeat the first row: finite data, so that their weight of 0 makes their gradients exactly 0.
    pub(super) fn load(
        &mut self,
        device: &Device,
        encoder: &mut wgpu::CommandEncoder,
        step: &Step,
        inputs: &[&[u8]],
    ) -> Result<()> {
        let plan = self.plan.clone();
        let valid = step.valid as usize;
        // Kernels rely on this: what they hold for a group or a row is of the micro-batch's size, and their loops end.
        let most = plan.micro_batch.min(LARGEST_SIZE as usize);
        if valid == 0 || valid > most {
            return Err(device.error(format!("a micro-batch of {most} takes 1 to {most} valid rows, got {valid}")));
        }
        let expected_inputs = plan.uploaded().count();
        if inputs.len() != expected_inputs {
            return Err(device.error(format!("the plan takes {expected_inputs} inputs, got {}", inputs.len())));
        }
        for ((_, planned), data) in plan.uploaded().zip(inputs) {
            // A full micro-batch may also hold inputs that are not rows.
            let full = valid == plan.micro_batch;
            let expected = if full { planned.ty.bytes() } else { planned.ty.bytes() / plan.micro_batch * valid };
            if data.len() != expected {
                let name = &planned.name;
                return Err(
                    device.error(format!("input {name}: {valid} rows have {expected} bytes, got {}", data.len()))
                );
            }
        }
        let ranges = plan.upload_ranges();
        let staging = &mut self.ring[self.next];
        staging.write(device, |view| {
            view.slice(..size_of::<Step>()).copy_from_slice(bytemuck::bytes_of(step));
            for (((_, planned), data), range) in plan.uploaded().zip(inputs).zip(&ranges) {
                let row = planned.ty.bytes() / plan.micro_batch;
                let start = range.start as usize;
                view.slice(start..start + data.len()).copy_from_slice(data);
                for padding in valid..plan.micro_batch {
                    let at = start + padding * row;
                    let source = if planned.is_weight() { &ZEROS[..row] } else { &data[..row] };
                    view.slice(at..at + row).copy_from_slice(source);
                }
            }
        })?;
        let source = staging.buffer();
        encoder.copy_buffer_to_buffer(source, 0, &self.step.buffer, 0, size_of::<Step>() as u64);
        for (range, (index, _)) in ranges.iter().zip(plan.uploaded()) {
            encoder.copy_buffer_to_buffer(source, range.start, &self.inputs[index].buffer, 0, range.end - range.start);
        }
        Ok(())
    }

    /// To be called with the submission that holds what [`Executable::load`] recorded.
    pub(super) fn loaded(&mut self, submission: wgpu::SubmissionIndex) {
        self.ring[self.next].submitted(submission);
        self.next = (self.next + 1) % RING;
    }
}

/// The weight of a padding row.
const ZEROS: [u8; 4] = [0; 4];
