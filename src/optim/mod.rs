//! Optimizers as kernels over flat buckets. Knows buckets and their parameters' names, not layers.
//!
//! One update is: the global norm of the averaged gradient, then per run of parameters (neighbours that are treated
//! alike) the optimizer's kernel. Gradients arrive as sums over the whole step; the kernels multiply by 1/W, once, and
//! by the clipping factor. When any gradient is not finite, no weight and no moment changes. Running statistics, which
//! no gradient changes, are merged beside.

mod groups;
mod lamb;
mod optimizer;
mod plateau;
mod reference;
mod rule;
mod running;
mod schedule;
mod span;
mod update;

pub use groups::{Group, Groups, Treatment};
pub use optimizer::Optimizer;
pub use plateau::Plateau;
#[cfg(not(feature = "test-support"))]
pub(crate) use reference::ReferenceParameter;
#[cfg(feature = "test-support")]
pub use reference::ReferenceParameter;
pub(crate) use rule::AVERAGE;
pub use rule::UpdateRule;
pub use schedule::{Decay, Schedule};
pub use span::{At, Span};
pub use update::{NormOutcome, Update, UpdatePlan};
