//! The update as a list of dispatches over a layout's buckets.

use std::sync::Arc;

use super::groups::Treatment;
use super::lamb;
use super::rule::UpdateRule;
use super::running::merges;
use crate::error::Result;
use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel, Launch, Operand, Target};
use crate::plan::{ALIGNMENT, Buffer, Dispatch, Layout, Placed, Storage, UpdateStorage, View};

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
    /// 1 when every gradient and every sum for running statistics was finite and the update was applied, 0 when it was
    /// skipped.
    pub applied: u32,
    /// Padding to 16 bytes.
    pub reserved: u32,
}

/// Bytes of the norm buffer.
pub(crate) const NORM_BYTES: u64 = size_of::<NormOutcome>() as u64;

/// Most elements that one workgroup of the norm pass sums.
const CHUNK: u32 = 16_384;
const WORKGROUP: u32 = 256;
/// Bytes of a chunk in [`Buffer::Partials`]: where it begins and ends, and its sum.
const PARTIAL_BYTES: usize = 12;

/// An optimizer's update of all buckets, as a list of dispatches: the norm of the averaged gradient, then the
/// optimizer's kernel for each run of parameters that are treated alike.
#[derive(Debug, Clone)]
pub struct UpdatePlan {
    /// What runs, in order.
    pub dispatches: Vec<Dispatch>,
    /// Names of the moments; moment m of bucket b is [`Buffer::State`].
    pub moments: Vec<&'static str>,
    /// First element and end, in its bucket, of each chunk that the norm pass sums: what [`Buffer::Partials`] starts
    /// with. No chunk is of two parameters, and their order is that of the parameters, so that how these are cut into
    /// buckets does not change the norm.
    pub chunks: Vec<[u32; 2]>,
    /// Bytes of [`Buffer::Partials`].
    pub partials: u64,
    /// For each bucket, the number of dispatches after which its parameters are updated.
    pub ready: Vec<usize>,
}

impl UpdatePlan {
    /// The update of `layout`'s parameters by `rule`.
    ///
    /// # Errors
    /// When the settings are out of range, a group matches no parameter, or a kernel does not fit the target.
    pub fn new(rule: &UpdateRule, layout: &Arc<Layout>, target: &Target) -> Result<Self> {
        rule.check(layout)?;
        let (trained, all) = (layout.trained_buckets(), layout.buckets().len());
        let runs: Vec<Vec<Run>> = (0..trained).map(|bucket| runs(rule, layout, bucket)).collect();
        let chunks: Vec<_> = (0..all).map(|bucket| chunks(rule, layout, bucket)).collect();
        let mut builder = Builder { target, dispatches: Vec::new(), partials: 0 };
        builder.norm(&chunks, layout, rule.clip_norm)?;
        let mut ready = Vec::new();
        for (bucket, runs) in runs.iter().enumerate() {
            for run in runs {
                builder.run(rule, run, bucket)?;
            }
            ready.push(builder.dispatches.len());
        }
        for bucket in trained..all {
            for (kernel, bindings, groups) in merges(layout, bucket, NORM) {
                let (views, access): (Vec<_>, Vec<_>) = bindings.into_iter().unzip();
                builder.push(kernel, views, &access, groups)?;
            }
            ready.push(builder.dispatches.len());
        }
        let Builder { dispatches, partials, .. } = builder;
        Ok(Self { dispatches, moments: rule.moments(), chunks: chunks.concat(), partials, ready })
    }

    /// What a device that applies it to `layout` has beside the others.
    pub fn storage(&self, layout: &Layout) -> UpdateStorage {
        Storage::for_update(layout, self.moments.len(), self.partials, self.dispatches.len())
    }
}

/// Where the outcome of the norm pass is.
const NORM: View = View { buffer: Buffer::Norm, offset: 0, bytes: NORM_BYTES };

/// Neighbouring parameters of a bucket that are treated alike (one, where the optimizer goes by parameter), padding
/// included.
#[derive(Debug, Clone, Copy)]
struct Run {
    treatment: Treatment,
    /// First byte in the bucket.
    offset: u64,
    bytes: u64,
}

impl Run {
    fn view(&self, buffer: Buffer) -> View {
        View { buffer, offset: self.offset, bytes: self.bytes }
    }
}

/// The runs of a bucket. Parameters that are not updated are in none.
fn runs(rule: &UpdateRule, layout: &Layout, bucket: usize) -> Vec<Run> {
    let mut placed: Vec<_> = layout.parameters().iter().filter(|p| p.bucket == bucket).collect();
    placed.sort_by_key(|p| p.offset);
    let mut runs: Vec<Run> = Vec::new();
    for parameter in placed {
        let Some(treatment) = rule.treatment(parameter) else { continue };
        let (offset, bytes) = (parameter.offset, parameter.bytes.next_multiple_of(ALIGNMENT));
        let alike = |run: &Run| run.treatment == treatment && !rule.optimizer.by_parameter();
        match runs.last_mut() {
            Some(run) if alike(run) && run.offset + run.bytes == offset => run.bytes += bytes,
            _ => runs.push(Run { treatment, offset, bytes }),
        }
    }
    runs
}

/// The chunks of a bucket's parameters that are updated, or of the sums for its running statistics.
fn chunks(rule: &UpdateRule, layout: &Layout, bucket: usize) -> Vec<[u32; 2]> {
    let mut placed: Vec<_> = layout.parameters().iter().filter(|p| p.bucket == bucket).collect();
    placed.sort_by_key(|p| p.offset);
    let counts = |p: &&&Placed| !p.role.is_trained() || rule.treatment(p).is_some();
    let of = |p: &Placed| {
        let (first, end) = ((p.offset / 4) as u32, ((p.offset + p.bytes) / 4) as u32);
        (first..end).step_by(CHUNK as usize).map(move |start| [start, end.min(start.saturating_add(CHUNK))])
    };
    placed.iter().filter(counts).flat_map(|p| of(p)).collect()
}

/// Collects the dispatches of an update.
struct Builder<'a> {
    target: &'a Target,
    dispatches: Vec<Dispatch>,
    /// Bytes of [`Buffer::Partials`] that are taken.
    partials: u64,
}

impl Builder<'_> {
    /// The norm of the gradients in the chunks of each bucket. The sums for running statistics, in the last buckets,
    /// are no part of it, but must be finite as well.
    fn norm(&mut self, chunks: &[Vec<[u32; 2]>], layout: &Layout, max_norm: Option<f32>) -> Result<()> {
        let all: usize = chunks.iter().map(Vec::len).sum();
        let partials = self.partials((all * PARTIAL_BYTES) as u64);
        let mut first = 0;
        for (bucket, chunks) in chunks.iter().enumerate().filter(|(_, chunks)| !chunks.is_empty()) {
            let bytes = layout.buckets()[bucket];
            let kernel = Kernel::linear(shader!("norm_partial"), WORKGROUP)
                .size("count", bytes as usize / 4)
                .size("first", first)
                .size("chunks", chunks.len())
                .size("all", all)
                .define_if(bucket >= layout.trained_buckets(), "RUNNING");
            let views = vec![View { buffer: Buffer::Gradient(bucket), offset: 0, bytes }, partials];
            self.push(kernel, views, &[Access::Read, Access::ReadWrite], chunks.len() as u64)?;
            first += chunks.len();
        }
        let kernel = Kernel::linear(shader!("norm_finish"), WORKGROUP)
            .size("count", all)
            .define_if(max_norm.is_some(), "CLIP")
            .constant("MAX_NORM", max_norm.unwrap_or(0.0));
        self.push(kernel, vec![partials, NORM], &[Access::Read, Access::ReadWrite], 1)
    }

    /// Room for `bytes` of partial sums, at an aligned offset.
    fn partials(&mut self, bytes: u64) -> View {
        let offset = self.partials;
        self.partials = (offset + bytes).next_multiple_of(ALIGNMENT);
        View { buffer: Buffer::Partials, offset, bytes }
    }

    /// The update of a run, and of its moving average.
    fn run(&mut self, rule: &UpdateRule, run: &Run, bucket: usize) -> Result<()> {
        let (optimizer, parameters) = (&rule.optimizer, run.view(Buffer::Parameter(bucket)));
        if optimizer.by_parameter() {
            let partials = self.partials(lamb::partials(run.bytes));
            let view = |buffer| run.view(buffer);
            for (kernel, views, access, groups) in lamb::passes(optimizer, run.treatment, bucket, view, NORM, partials)
            {
                self.push(kernel, views, &access, groups)?;
            }
        } else {
            let mut views = vec![parameters, run.view(Buffer::Gradient(bucket)), NORM];
            views.extend((0..optimizer.moments().len()).map(|moment| run.view(Buffer::State { moment, bucket })));
            let mut access = vec![Access::ReadWrite, Access::Read, Access::Read];
            access.resize(views.len(), Access::ReadWrite);
            self.elementwise(optimizer.kernel(run.treatment), views, &access)?;
        }
        let (Some(moment), Some(decay)) = (rule.average(), rule.ema_decay) else { return Ok(()) };
        let kernel = Kernel::linear(shader!("ema"), 64).constant("WEIGHT", (1.0 - decay) as f32);
        let views = vec![parameters, run.view(Buffer::State { moment, bucket }), NORM];
        self.elementwise(kernel, views, &[Access::Read, Access::ReadWrite, Access::Read])
    }

    /// A kernel of one invocation an element of the first view.
    fn elementwise(&mut self, kernel: Kernel, views: Vec<View>, access: &[Access]) -> Result<()> {
        let count = views[0].bytes as usize / 4;
        let groups = count.div_ceil(kernel.workgroup[0] as usize) as u64;
        self.push(kernel.size("count", count), views, access, groups)
    }

    fn push(&mut self, kernel: Kernel, views: Vec<View>, access: &[Access], groups: u64) -> Result<()> {
        let operands = access.iter().map(|&a| (Operand::Scratch(0), a)).collect();
        let launch = Launch::new(kernel, operands, groups as usize);
        for view in &views {
            self.target.check_binding(|| view.buffer.to_string(), view.bytes)?;
        }
        self.dispatches.push(Dispatch::new(launch, views, "update", self.target)?);
        Ok(())
    }
}
