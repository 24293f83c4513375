//! The plan: a graph lowered, for one micro-batch size and one target, to a flat list of dispatches over planned
//! buffers. A pure function: no device is touched, and the memory that a run needs is known from it. It must not know
//! wgpu.

mod accumulate;
mod compress;
mod fingerprint;
mod layout;
mod lower;
mod memory;
mod slots;

use std::fmt;
use std::sync::Arc;

pub(crate) use accumulate::{kernel as accumulate_kernel, pool_kernel};
pub use compress::Compression;
pub(crate) use compress::compressions;
pub(crate) use fingerprint::{FINGERPRINT_BYTES, fingerprints};
pub(crate) use layout::ALIGNMENT;
pub use layout::{Layout, Placed};
pub use memory::{Allocation, Footprint, Storage, UpdateStorage};
pub(crate) use memory::{QUERY_BYTES, sizes, sizes_of};

use crate::error::Result;
pub(crate) use crate::graph::WEIGHT_INPUT;
pub use crate::graph::{Role, Running};
use crate::kernel::{Kernel, Launch, Target};
use crate::tensor::{HostTensor, TensorType};

/// A buffer on a device, by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// Activations and scratch memory, reused by lifetime.
    Slot(usize),
    /// A tensor that the host fills, by input index.
    Input(usize),
    /// A tensor that stays from run to run, by index.
    Carried(usize),
    /// A bucket of parameters.
    Parameter(usize),
    /// A bucket of gradients: sums over the micro-batches of a step.
    Gradient(usize),
    /// A bucket of optimizer state.
    State {
        /// Which of the optimizer's moments.
        moment: usize,
        /// Which bucket.
        bucket: usize,
    },
    /// What rounding took away of a bucket's gradients, to be added to the next step's.
    Residual(usize),
    /// A bucket of gradients in half the bits.
    Packed(usize),
    /// Scalar statistics, one every 256 bytes.
    Statistics,
    /// Chunks and partial sums of the gradient's squared norm.
    Partials,
    /// Outcome of the norm pass: norm, scale, finite.
    Norm,
    /// A fingerprint of each parameter bucket, one every 256 bytes.
    Fingerprints,
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(i) => write!(f, "slot {i}"),
            Self::Input(i) => write!(f, "input {i}"),
            Self::Carried(i) => write!(f, "carried {i}"),
            Self::Parameter(b) => write!(f, "parameters {b}"),
            Self::Gradient(b) => write!(f, "gradients {b}"),
            Self::State { moment, bucket } => write!(f, "state {moment} of bucket {bucket}"),
            Self::Residual(b) => write!(f, "residual {b}"),
            Self::Packed(b) => write!(f, "packed gradients {b}"),
            Self::Statistics => f.write_str("statistics"),
            Self::Partials => f.write_str("norm partials"),
            Self::Norm => f.write_str("norm"),
            Self::Fingerprints => f.write_str("fingerprints"),
        }
    }
}

/// A range of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The buffer.
    pub buffer: Buffer,
    /// First byte; a multiple of 256.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A kernel over concrete views.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The kernel.
    pub kernel: Kernel,
    /// Its storage bindings.
    pub views: Vec<View>,
    /// Workgroups.
    pub groups: [u32; 3],
    /// The layer it belongs to.
    pub scope: String,
    /// Floating-point operations that its result takes, where the op says.
    pub flops: Option<u64>,
}

impl Dispatch {
    /// `launch` over `views`.
    ///
    /// # Errors
    /// When the kernel does not fit the target.
    pub(crate) fn new(launch: Launch, views: Vec<View>, scope: &str, target: &Target) -> Result<Self> {
        let Launch { kernel, groups, flops, .. } = launch;
        target.check_kernel(&kernel)?;
        Ok(Self { kernel, views, groups, scope: scope.to_owned(), flops })
    }

    /// Bytes of all that it binds, each view once, whether it is read, written or both.
    pub fn bytes(&self) -> u64 {
        let is_first = |(index, view): &(usize, &View)| !self.views[..*index].contains(view);
        self.views.iter().enumerate().filter(is_first).map(|(_, view)| view.bytes).sum()
    }
}

/// A tensor that the host fills.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedInput {
    /// The graph's name for it.
    pub name: String,
    /// Its type; the first dimension is the micro-batch, unless it is a constant.
    pub ty: TensorType,
    /// What it is filled with once, where it is a constant.
    pub constant: Option<Arc<HostTensor>>,
}

impl PlannedInput {
    /// Whether this is the sample weights, which are 0 for padding rows.
    pub(crate) fn is_weight(&self) -> bool {
        self.name == WEIGHT_INPUT
    }
}

/// A tensor that can be read after a run.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedOutput {
    /// The graph's name for it.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// Where it is.
    pub view: View,
}

/// A graph lowered, for one micro-batch size and one target, to a flat list of dispatches over planned buffers. The
/// memory that a run needs is known from it, before a device is touched.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Rows of a micro-batch.
    pub micro_batch: usize,
    /// What the host fills.
    pub inputs: Vec<PlannedInput>,
    /// Sizes of the slots in bytes.
    pub slots: Vec<u64>,
    /// Sizes in bytes of the tensors that stay from run to run.
    pub carried: Vec<u64>,
    /// Where the parameters are.
    pub layout: Arc<Layout>,
    /// Number of scalar statistics.
    pub statistics: usize,
    /// What runs, in order.
    pub dispatches: Vec<Dispatch>,
    /// What stays readable.
    pub outputs: Vec<PlannedOutput>,
    /// For each bucket, the number of dispatches after which its gradients are complete (0 when the plan has none).
    pub ready: Vec<usize>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, dispatch) in self.dispatches.iter().enumerate() {
            let [x, y, z] = dispatch.groups;
            let label = dispatch.kernel.label();
            write!(f, "{index:4}  {label:<28} {:<16}", format!("{x}×{y}×{z}"))?;
            let views: Vec<_> = dispatch
                .views
                .iter()
                .map(|v| if v.offset == 0 { v.buffer.to_string() } else { format!("{}+{}", v.buffer, v.offset) })
                .collect();
            write!(f, " {}", views.join(", "))?;
            writeln!(
                f,
                "{}",
                if dispatch.scope.is_empty() { String::new() } else { format!("  # {}", dispatch.scope) }
            )?;
        }
        Ok(())
    }
}
