//! How an update merges a step's statistics into the running ones: a small kernel for each, outside the gradient's
//! norm, its clipping and the optimizer.

use crate::kernel::shader::shader;
use crate::kernel::{Access, Kernel, elementwise};
use crate::plan::{Buffer, Layout, Placed, Role, Running, View};

/// A kernel, its views with how each is used, and its workgroups.
pub(super) type Merge = (Kernel, Vec<(View, Access)>, u64);

/// What merges the sums over a step into the running statistics of `bucket`; `norm` says whether the step is applied.
pub(super) fn merges(layout: &Layout, bucket: usize, norm: View) -> Vec<Merge> {
    let running = |placed: &Placed| match placed.role {
        Role::Running(running) if placed.bucket == bucket => Some(merge(layout, placed, running, norm)),
        _ => None,
    };
    layout.parameters().iter().filter_map(running).collect()
}

fn merge(layout: &Layout, placed: &Placed, running: Running, norm: View) -> Merge {
    let sum = |of: &Placed| View { buffer: Buffer::Gradient(of.bucket), offset: of.offset, bytes: of.bytes };
    let kernel = Kernel::linear(shader!("running"), 64);
    let (kernel, sums) = match running {
        Running::Steps => (kernel.define("STEPS"), vec![]),
        Running::Mean { momentum, steps } => {
            (kernel.constant("MOMENTUM", momentum), vec![sum(placed), sum(layout.place(steps))])
        }
        Running::Variance { momentum, steps, .. } => {
            (kernel.define("VARIANCE").constant("MOMENTUM", momentum), vec![sum(placed), sum(layout.place(steps))])
        }
    };
    let value = View { buffer: Buffer::Parameter(placed.bucket), ..sum(placed) };
    let mut views = vec![(value, Access::ReadWrite), (norm, Access::Read)];
    views.extend(sums.into_iter().map(|view| (view, Access::Read)));
    let launch = elementwise(kernel, placed.shape.elements(), vec![]);
    (launch.kernel, views, u64::from(launch.groups[0]) * u64::from(launch.groups[1]))
}
