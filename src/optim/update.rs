//! The update as a list of dispatches over a layout's buckets.

use std::sync::Arc;

use super::Optimizer;
use super::running::merges;
use crate::error::Result;
use crate::op::shader::shader;
use crate::op::{Access, Kernel, Launch, Operand, Target, kernel::elementwise};
use crate::plan::{ALIGNMENT, Buffer, Dispatch, Layout, View};

/// What changes from one update to the next; the kernels' uniform (`shaders/shared/update.wgsl`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Update {
    /// Learning rate of this update.
    pub learning_rate: f32,
    /// 1/W, W the sum of the sample weights of the whole step.
    pub inverse_weight: f32,
    /// Adam's 1/(1 − β₁ᵗ).
    pub correction_1: f32,
    /// Adam's 1/(1 − β₂ᵗ).
    pub correction_2: f32,
}

/// What the norm pass found; its buffer's contents.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct NormOutcome {
    /// ‖g‖₂ of the averaged gradient over all trained parameters, before clipping.
    pub norm: f32,
    /// What the gradient sums were multiplied by: 1/W, and the clipping factor.
    pub scale: f32,
    /// 1 when every gradient and every sum for running statistics was finite and the update was applied, 0 when it was skipped.
    pub applied: u32,
    /// Padding to 16 bytes.
    pub reserved: u32,
}

/// Bytes of the norm buffer.
pub const NORM_BYTES: u64 = size_of::<NormOutcome>() as u64;

/// Elements that one workgroup of the norm pass sums.
const CHUNK: u64 = 16_384;
const WORKGROUP: u32 = 256;

/// An optimizer's update of all buckets. See the module's documentation.
#[derive(Debug, Clone)]
pub struct UpdatePlan {
    /// What runs, in order.
    pub dispatches: Vec<Dispatch>,
    /// Names of the moments; moment m of bucket b is [`Buffer::State`].
    pub moments: &'static [&'static str],
    /// Bytes of [`Buffer::Partials`].
    pub partials: u64,
    /// For each bucket, the number of dispatches after which its parameters are updated.
    pub ready: Vec<usize>,
}

impl UpdatePlan {
    /// The update of `layout`'s parameters by `optimizer`, the averaged gradient clipped to the global norm `max_norm`.
    ///
    /// # Errors
    /// When the settings are out of range or a kernel does not fit the target.
    pub fn new(optimizer: &Optimizer, layout: &Arc<Layout>, max_norm: Option<f32>, target: &Target) -> Result<Self> {
        optimizer.validate()?;
        let mut dispatches = Vec::new();
        let trained = layout.trained_buckets();
        let chunks: Vec<u64> = layout.buckets().iter().map(|bytes| (bytes / 4).div_ceil(CHUNK)).collect();
        // Each bucket's partial sums start at an aligned offset.
        let mut partials = 0;
        let mut ranges = Vec::new();
        for &count in &chunks {
            ranges.push((partials, count * 4));
            partials = (partials + count * 4).next_multiple_of(ALIGNMENT);
        }
        let norm = View { buffer: Buffer::Norm, offset: 0, bytes: NORM_BYTES };
        for (bucket, &(offset, bytes)) in ranges.iter().enumerate() {
            let gradients = layout.buckets()[bucket];
            let kernel = Kernel::linear(shader!("norm_partial"), WORKGROUP)
                .constant("COUNT", gradients as usize / 4)
                .constant("CHUNK", CHUNK as u32)
                .constant("CHUNKS", bytes as usize / 4)
                .define_if(bucket >= trained, "RUNNING");
            let views = vec![
                View { buffer: Buffer::Gradient(bucket), offset: 0, bytes: gradients },
                View { buffer: Buffer::Partials, offset, bytes },
            ];
            push(&mut dispatches, target, kernel, views, &[Access::Read, Access::ReadWrite], bytes / 4)?;
        }
        let kernel = Kernel::linear(shader!("norm_finish"), WORKGROUP)
            .constant("COUNT", partials as usize / 4)
            .define_if(max_norm.is_some(), "CLIP")
            .constant("MAX_NORM", max_norm.unwrap_or(0.0));
        let views = vec![View { buffer: Buffer::Partials, offset: 0, bytes: partials }, norm];
        push(&mut dispatches, target, kernel, views, &[Access::Read, Access::ReadWrite], 1)?;

        let moments = optimizer.moments();
        let mut ready = Vec::new();
        for bucket in 0..trained {
            for (decay, offset, bytes) in runs(layout, bucket) {
                let view = |buffer| View { buffer, offset, bytes };
                let mut views = vec![view(Buffer::Parameter(bucket)), view(Buffer::Gradient(bucket)), norm];
                views.extend((0..moments.len()).map(|moment| view(Buffer::State { moment, bucket })));
                let mut access = vec![Access::ReadWrite, Access::Read, Access::Read];
                access.resize(views.len(), Access::ReadWrite);
                let count = bytes as usize / 4;
                let launch = elementwise(optimizer.kernel(decay), count, vec![]);
                let groups = u64::from(launch.groups[0]) * u64::from(launch.groups[1]);
                push(&mut dispatches, target, launch.kernel, views, &access, groups)?;
            }
            ready.push(dispatches.len());
        }
        for bucket in trained..layout.buckets().len() {
            for (kernel, bindings, groups) in merges(layout, bucket, norm) {
                let (views, access): (Vec<_>, Vec<_>) = bindings.into_iter().unzip();
                push(&mut dispatches, target, kernel, views, &access, groups)?;
            }
            ready.push(dispatches.len());
        }
        Ok(Self { dispatches, moments, partials, ready })
    }
}

/// Neighbouring parameters of a bucket that are treated alike: (decays, first byte, bytes), padding included.
fn runs(layout: &Layout, bucket: usize) -> Vec<(bool, u64, u64)> {
    let mut placed: Vec<_> = layout.parameters().iter().filter(|p| p.bucket == bucket).collect();
    placed.sort_by_key(|p| p.offset);
    let mut runs: Vec<(bool, u64, u64)> = Vec::new();
    for parameter in placed {
        let decay = Optimizer::decays(parameter);
        let bytes = parameter.bytes.next_multiple_of(ALIGNMENT);
        match runs.last_mut() {
            Some(run) if run.0 == decay => run.2 += bytes,
            _ => runs.push((decay, parameter.offset, bytes)),
        }
    }
    runs
}

fn push(
    dispatches: &mut Vec<Dispatch>,
    target: &Target,
    kernel: Kernel,
    views: Vec<View>,
    access: &[Access],
    groups: u64,
) -> Result<()> {
    let operands = access.iter().map(|&a| (Operand::Scratch(0), a)).collect();
    let Launch { kernel, groups, .. } = Launch::new(kernel, operands, groups as usize);
    target.check_kernel(&kernel)?;
    for view in &views {
        target.check_binding(|| view.buffer.to_string(), view.bytes)?;
    }
    dispatches.push(Dispatch { kernel, views, groups, scope: "update".to_owned() });
    Ok(())
}
