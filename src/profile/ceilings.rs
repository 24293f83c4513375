//! What an adapter can do at best, by two kernels that do nothing else: multiply and add in registers, and copy.

use std::sync::Arc;

use super::report::{Ceilings, Part, Rate, Timed};
use crate::error::Result;
use crate::gpu::{Adapter, Device, Duty, Engine, Executable, MicroBatch, TimedBy};
use crate::graph::Graph;
use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel, Launch, Operand, Step, elementwise};
use crate::plan::{Buffer, Dispatch, Layout, Plan, Storage, View};
use crate::scratch::{median, repeat};

/// Bytes that are copied, where the adapter and the memory limit allow them.
const COPIED: u64 = 64 << 20;
const WORKGROUP: u32 = 64;
/// Iterations of an invocation, and what each takes: two vectors of four, through 16 multiplications and additions.
const TURNS: usize = 256;
const TURN_FLOPS: usize = 2 * 2 * 4 * 16;
/// Seconds from which on a dispatch is long beside what starting it takes.
const LONG: f64 = 5e-3;

/// `groups` workgroups that multiply and add. Operand 0 takes an element an invocation.
fn fma(groups: usize) -> Launch {
    let kernel = Kernel::linear(shader!("peak_fma"), WORKGROUP).constant("TURNS", TURNS);
    let flops = groups * WORKGROUP as usize * TURNS * TURN_FLOPS;
    Launch::new(kernel, vec![(Operand::Output(0), Access::ReadWrite)], groups).flops(flops)
}

/// A copy of `bytes` bytes, a multiple of 16.
fn copy(bytes: u64) -> Launch {
    let operands = vec![(Operand::Input(0), Access::Read), (Operand::Output(0), Access::ReadWrite)];
    elementwise(Kernel::linear(shader!("peak_copy"), WORKGROUP), bytes as usize / 16, operands)
}

/// Both kernels, for tools that check shaders.
pub(crate) fn kernels() -> [Kernel; 2] {
    [fma(1), copy(16)].map(|launch| launch.kernel)
}

/// Measures on a device of its own, each ceiling for `seconds` at most.
pub(super) fn measure(adapter: &Adapter, memory_limit: Option<u64>, seconds: f64) -> Result<Ceilings> {
    let device = Device::open(adapter, memory_limit)?;
    // Half of the limit for two buffers: the rest is for what every engine has.
    let most = memory_limit.map_or(COPIED, |limit| limit / 4).min(device.target().largest_binding());
    let bytes = (most.min(COPIED) / 256 * 256).max(256);
    let mut bench = Bench::new(device, bytes)?;
    let most = (bytes / u64::from(4 * WORKGROUP)) as usize;
    let mut groups = 16.min(most);
    while groups < most && bench.seconds(fma(groups))? < LONG {
        groups = (2 * groups).min(most);
    }
    let multiplied = bench.rate(fma(groups), seconds)?;
    let copied = bench.rate(copy(bytes), seconds)?;
    Ok(Ceilings { gflops: multiplied.gflops.unwrap_or(0.0), gbytes: copied.gbytes })
}

/// A device that runs single kernels over two buffers.
struct Bench {
    engine: Engine,
    layout: Arc<Layout>,
    /// Bytes of either buffer.
    bytes: u64,
}

impl Bench {
    fn new(device: Arc<Device>, bytes: u64) -> Result<Self> {
        let layout = Arc::new(Layout::new(&Graph::new(), device.target())?);
        let storage = Storage::new(&layout, 0, false, false).timed(device.has_clock());
        Ok(Self { engine: Engine::new(device, &storage, &Duty::Inference)?, layout, bytes })
    }

    /// `launch`, whose inputs and outputs are the two buffers, made ready.
    fn ready(&self, launch: Launch) -> Result<Executable> {
        let view = |operand: &Operand| {
            let slot = usize::from(matches!(operand, Operand::Input(_)));
            View { buffer: Buffer::Slot(slot), offset: 0, bytes: self.bytes }
        };
        let views = launch.operands.iter().map(view).collect();
        let dispatch = Dispatch::new(launch, views, "", self.engine.device().target())?;
        self.engine.compile(Arc::new(Plan {
            micro_batch: 1,
            inputs: Vec::new(),
            slots: vec![self.bytes; 2],
            carried: Vec::new(),
            layout: self.layout.clone(),
            statistics: 0,
            dispatches: vec![dispatch],
            outputs: Vec::new(),
            ready: Vec::new(),
        }))
    }

    /// Runs it once; its seconds.
    fn run(&mut self, executable: &mut Executable) -> Result<f64> {
        let batch = MicroBatch { step: Step { valid: 1, first: 1, ..Step::default() }, inputs: &[] };
        for by in [TimedBy::Device, TimedBy::Host] {
            if let Some(seconds) = self.engine.time_gradients(executable, &batch, by)? {
                return Ok(seconds.iter().sum());
            }
        }
        unreachable!("the host has a clock")
    }

    /// Seconds of one run, the second.
    fn seconds(&mut self, launch: Launch) -> Result<f64> {
        let mut executable = self.ready(launch)?;
        self.run(&mut executable)?;
        self.run(&mut executable)
    }

    /// The median over `seconds`.
    fn rate(&mut self, launch: Launch, seconds: f64) -> Result<Rate> {
        let mut executable = self.ready(launch)?;
        self.run(&mut executable)?;
        let median = median(repeat(seconds, || self.run(&mut executable))?);
        let dispatch = Timed::new(Part::Gradients, &executable.plan().dispatches[0], median);
        Ok(Rate::of(std::iter::once(&dispatch)))
    }
}
