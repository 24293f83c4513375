//! What an op asks a device to do, in terms that name no device: kernels (a shader with its constants), the operands
//! they bind, and the limits they must fit.

pub mod shader;
pub(crate) mod tile;

pub use shader::Shader;

use crate::error::{Error, Result};
use shader::expand;

/// How a kernel uses a storage buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// The value of a constant that is put in front of a shader.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant {
    /// `const NAME: u32`
    U32(u32),
    /// `const NAME: f32`; must be finite.
    F32(f32),
}

impl From<usize> for Constant {
    fn from(value: usize) -> Self {
        Self::U32(value as u32)
    }
}

impl From<u32> for Constant {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<f32> for Constant {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

/// A compute kernel: a shader, the definitions and constants it is expanded with, and what it binds.
///
/// Storage buffers are `@group(0)`, bindings 0, 1, … in operand order; behind them is the uniform `sizes`, where the
/// kernel has any. A kernel that reads values which change from step to step imports `step` (or `update`), a uniform at
/// `@group(1) @binding(0)`.
///
/// A **constant** is known to the driver's compiler, and another value is another compilation: it is for what the model
/// fixes. A **size** is read from the uniform: it is for what follows the number of rows, so that a kernel that is
/// compiled once serves micro-batches of all sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// The source.
    pub shader: Shader,
    /// Names that `#ifdef` finds defined.
    pub defines: Vec<&'static str>,
    /// Constants put in front.
    pub constants: Vec<(&'static str, Constant)>,
    /// Sizes, which the shader reads as `sizes.NAME`; each at most [`LARGEST_SIZE`].
    pub sizes: Vec<(&'static str, u32)>,
    /// The storage bindings' access, in order.
    pub bindings: Vec<Access>,
    /// Workgroup size; the shader takes it from constants.
    pub workgroup: [u32; 3],
}

impl Kernel {
    /// A kernel of `shader` with `workgroup` invocations in x, which the shader sees as the constant `WG`.
    pub fn linear(shader: Shader, workgroup: u32) -> Self {
        let constants = vec![("WG", Constant::U32(workgroup))];
        Self { shader, defines: vec![], constants, sizes: vec![], bindings: vec![], workgroup: [workgroup, 1, 1] }
    }

    /// Defines `name`.
    pub fn define(mut self, name: &'static str) -> Self {
        self.defines.push(name);
        self
    }

    /// Defines `name` if `condition` holds.
    pub fn define_if(self, condition: bool, name: &'static str) -> Self {
        if condition { self.define(name) } else { self }
    }

    /// Puts a constant in front.
    pub fn constant(mut self, name: &'static str, value: impl Into<Constant>) -> Self {
        self.constants.push((name, value.into()));
        self
    }

    /// Adds a size, which the shader reads as `sizes.NAME`.
    pub fn size(mut self, name: &'static str, value: usize) -> Self {
        self.sizes.push((name, u32::try_from(value).unwrap_or(u32::MAX)));
        self
    }

    /// The source that a device compiles.
    pub fn source(&self) -> String {
        expand(self)
    }

    /// Whether it reads the uniform of the step or the update.
    pub(crate) fn reads_uniform(&self) -> bool {
        self.source().contains("@group(1)")
    }

    /// A name for people: the shader's, with the definitions.
    pub fn label(&self) -> String {
        let mut label = self.shader.name.to_owned();
        for define in &self.defines {
            label.push('+');
            label.push_str(&define.to_lowercase());
        }
        label
    }
}

/// A tensor that a launch binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The op's input of this index.
    Input(usize),
    /// The op's output of this index.
    Output(usize),
    /// Scratch memory of this index, alive during this op only.
    Scratch(usize),
}

/// One dispatch of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The kernel; its bindings are filled by [`Launch::new`].
    pub kernel: Kernel,
    /// What it binds, in binding order.
    pub operands: Vec<Operand>,
    /// Workgroups in x, y and z; each at most 65,535.
    pub groups: [u32; 3],
    /// Whether the kernel imports `add`, so that with `ADD` it can add to its output what it would leave there.
    pub adds: bool,
    /// Floating-point operations that its result takes, a multiplication and an addition being two, where the op says:
    /// what a profile goes by.
    pub flops: Option<u64>,
}

/// WebGPU's bound on the workgroups in one dimension of a dispatch.
pub(crate) const MAX_GROUPS: u32 = 65_535;

impl Launch {
    /// A launch of `groups` workgroups, folded into y (and seen by the shader as `linear_group`) where they are more
    /// than one dimension takes.
    pub fn new(mut kernel: Kernel, operands: Vec<(Operand, Access)>, groups: usize) -> Self {
        kernel.bindings = operands.iter().map(|(_, access)| *access).collect();
        let operands = operands.into_iter().map(|(operand, _)| operand).collect();
        Self { kernel, operands, groups: fold(groups), adds: false, flops: None }
    }

    /// The same of a kernel that imports `add`.
    pub(crate) fn adding(self) -> Self {
        Self { adds: true, ..self }
    }

    /// The same, known to take so many floating-point operations.
    pub fn flops(self, flops: usize) -> Self {
        Self { flops: Some(flops as u64), ..self }
    }
}

/// Folds a number of workgroups into two dimensions; the product may be larger, so kernels check their index.
pub fn fold(groups: usize) -> [u32; 3] {
    let max = MAX_GROUPS as usize;
    if groups <= max {
        return [groups as u32, 1, 1];
    }
    let rows = groups.div_ceil(max);
    [groups.div_ceil(rows) as u32, rows as u32, 1]
}

/// A launch of one invocation an element; the shader gets their number as `sizes.count`.
pub fn elementwise(kernel: Kernel, count: usize, operands: Vec<(Operand, Access)>) -> Launch {
    let groups = count.div_ceil(kernel.workgroup[0] as usize);
    Launch::new(kernel.size("count", count), operands, groups)
}

/// `Input(index)`, read.
pub fn input(index: usize) -> (Operand, Access) {
    (Operand::Input(index), Access::Read)
}

/// `Output(index)`, written.
pub fn output(index: usize) -> (Operand, Access) {
    (Operand::Output(index), Access::ReadWrite)
}

/// What an op becomes on a device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lowering {
    /// Bytes of each scratch buffer.
    pub scratch: Vec<u64>,
    /// Launches, in order.
    pub launches: Vec<Launch>,
}

impl From<Launch> for Lowering {
    fn from(launch: Launch) -> Self {
        Self { scratch: vec![], launches: vec![launch] }
    }
}

/// How matrix kernels tile on an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tiling {
    /// Tiles in registers only: software adapters, where workgroup memory is a detour.
    Registers,
    /// Tiles staged in workgroup memory: real GPUs.
    Workgroup,
}

/// The limits and preferences of the device a plan is made for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The adapter's name, for messages.
    pub adapter: String,
    /// Largest storage binding, bytes.
    pub max_binding: u64,
    /// Largest buffer, bytes.
    pub max_buffer: u64,
    /// Most invocations in a workgroup.
    pub max_invocations: u32,
    /// Workgroup memory, bytes.
    pub max_workgroup_memory: u32,
    /// Most storage buffers that a kernel may bind.
    pub max_storage_buffers: u32,
    /// How matrix kernels tile.
    pub tiling: Tiling,
    /// Most multiply-adds of a matrix kernel that are written out one by one: compilers take time that grows with their
    /// square.
    pub unrolled: usize,
    /// Threads that run a software adapter's workgroups.
    pub threads: usize,
}

impl Default for Target {
    /// WebGPU's default limits, which every adapter meets.
    fn default() -> Self {
        Self {
            adapter: "WebGPU's default limits".to_owned(),
            max_binding: 128 << 20,
            max_buffer: 256 << 20,
            max_invocations: 256,
            max_workgroup_memory: 16 << 10,
            max_storage_buffers: 8,
            tiling: Tiling::Workgroup,
            unrolled: 512,
            threads: 8,
        }
    }
}

impl Target {
    /// The most bytes that a tensor may have.
    pub fn largest_binding(&self) -> u64 {
        self.max_binding.min(self.max_buffer)
    }

    /// The error for a tensor of `bytes` that is larger than a binding may be.
    pub(crate) fn over_binding(&self, what: String, bytes: u64, advice: &str) -> Error {
        Error::Limit {
            adapter: self.adapter.clone(),
            what,
            needed: bytes,
            limit_name: if self.max_binding <= self.max_buffer {
                "max_storage_buffer_binding_size"
            } else {
                "max_buffer_size"
            },
            limit: self.largest_binding(),
            advice: advice.to_owned(),
        }
    }

    /// Checks that `bytes`, of a tensor that grows with the micro-batch, can be bound.
    ///
    /// # Errors
    /// [`Error::Limit`] when they cannot.
    pub(crate) fn check_binding(&self, what: impl FnOnce() -> String, bytes: u64) -> Result<()> {
        if bytes <= self.largest_binding() {
            return Ok(());
        }
        Err(self.over_binding(
            what(),
            bytes,
            "take a smaller micro-batch or a smaller layer, or leave this adapter out",
        ))
    }

    /// Checks a kernel's workgroup, bindings and sizes.
    ///
    /// # Errors
    /// [`Error::Limit`] when they are over the target's limits, or a size over [`LARGEST_SIZE`].
    pub(crate) fn check_kernel(&self, kernel: &Kernel) -> Result<()> {
        let invocations = kernel.workgroup.iter().product();
        let size = kernel.sizes.iter().map(|(_, size)| *size).max().unwrap_or(0);
        let checks = [
            (invocations, self.max_invocations, "max_compute_invocations_per_workgroup"),
            (kernel.bindings.len() as u32, self.max_storage_buffers, "max_storage_buffers_per_shader_stage"),
            (size, LARGEST_SIZE, "largest size that kernels may be told of"),
        ];
        for (needed, limit, limit_name) in checks {
            if needed > limit {
                return Err(Error::Limit {
                    adapter: self.adapter.clone(),
                    what: format!("kernel {}", kernel.label()),
                    needed: u64::from(needed),
                    limit_name,
                    limit: u64::from(limit),
                    advice: "leave this adapter out".to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// The largest size, and the most rows of a micro-batch, that kernels may be told of: loops that count to them by small
/// steps stay within u32.
pub const LARGEST_SIZE: u32 = 1 << 30;

/// What changes from one micro-batch to the next; kernels that import `step` see it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Step {
    /// The run's seed, low word first.
    pub seed: [u32; 2],
    /// Optimizer step, counted from 0 over the whole run.
    pub step: u32,
    /// Position of the micro-batch's first row in the global batch.
    pub first_row: u32,
    /// Rows that hold samples, at most 2³⁰; the rest is padding of weight 0.
    pub valid: u32,
    /// What gradients are multiplied by before they are packed into half the bits; 0 where they are not.
    pub gradient_scale: f32,
    /// 1 in the first micro-batch of a step, in which its sums start anew, else 0.
    pub first: u32,
    /// Padding to a multiple of 16 bytes.
    pub reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_loops_may_wrap_on_is_refused() {
        let kernel = |size| Kernel::linear(Shader::new("test", ""), 64).size("count", size);
        let largest = LARGEST_SIZE as usize;
        assert!(Target::default().check_kernel(&kernel(largest)).is_ok());
        for size in [largest + 1, 1 << 40] {
            let message = Target::default().check_kernel(&kernel(size)).unwrap_err().to_string();
            assert!(message.contains("largest size"), "{message}");
        }
    }

    #[test]
    fn folding_covers_all_groups_within_the_limit() {
        for groups in [1, 65_535, 65_536, 70_001, 200_000_003] {
            let [x, y, z] = fold(groups);
            assert!(x <= MAX_GROUPS && y <= MAX_GROUPS && z == 1);
            assert!(x as usize * y as usize >= groups);
        }
    }
}
