//! Every kernel that the crate can put on a device, for tools that check shaders: the tests, `everygpu shaders --dump`.

use std::sync::Arc;

use crate::error::Result;
use crate::graph::{Graph, Init, Running};
use crate::kernel::{Kernel, Launch, Target};
use crate::op::{Example, OPS};
use crate::optim::{Optimizer, UpdatePlan, UpdateRule};
use crate::plan::{Compression, Layout, accumulate_kernel, compressions, fingerprints, pool_kernel};
use crate::profile::ceiling_kernels;
use crate::tensor::TensorType;

/// The kernels of every op's examples on `target`, in table order, then those of plans, profiles and optimizers; the same kernel
/// may come several times.
///
/// # Errors
/// When an example does not lower: a bug in its op.
pub fn all_kernels(target: &Target) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for example in OPS.iter().flat_map(|entry| (entry.examples)()) {
        kernels.extend(example_kernels(&example, target)?);
    }
    kernels.extend([accumulate_kernel(65), pool_kernel(65)].into_iter().flat_map(variants));
    kernels.extend(ceiling_kernels());
    for optimizer in Optimizer::variants() {
        kernels.extend(update_kernels(&optimizer, target)?);
    }
    Ok(kernels)
}

/// The kernels of an optimizer's update, clipping and the average included, on parameters that decay and that do not,
/// of running statistics, of the fingerprints and of the compression of gradients.
fn update_kernels(optimizer: &Optimizer, target: &Target) -> Result<Vec<Kernel>> {
    let mut graph = Graph::new();
    graph.parameter("weight", [7, 65], Init::Zeros)?;
    graph.parameter("bias", [65], Init::Zeros)?;
    let (steps, _) = graph.running("steps", [1], Init::Zeros, Running::Steps)?;
    let (mean, _) = graph.running("mean", [65], Init::Zeros, Running::Mean { momentum: 0.1, steps })?;
    graph.running("variance", [65], Init::Ones, Running::Variance { momentum: 0.1, steps, mean })?;
    let layout = Arc::new(Layout::new(&graph, target)?);
    let rule = UpdateRule { ema_decay: Some(0.999), ..UpdateRule::from(*optimizer) };
    let free = UpdatePlan::new(&rule, &layout, target)?;
    let clipped = UpdatePlan::new(&rule.clipped(1.0), &layout, target)?;
    let fingerprints = fingerprints(&layout, target)?;
    let compressions = [Compression::F16, Compression::Bf16].map(|c| compressions(c, &layout, target));
    let packed = compressions.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let all = clipped.dispatches.into_iter().chain(free.dispatches).chain(fingerprints).chain(packed);
    Ok(all.map(|dispatch| dispatch.kernel).collect())
}

fn example_kernels(example: &Example, target: &Target) -> Result<Vec<Kernel>> {
    let inputs: Vec<&TensorType> = example.inputs.iter().map(|(ty, _)| ty).collect();
    let outputs = example.op.infer(&inputs)?;
    let lowering = example.op.lower(&inputs, &outputs.iter().collect::<Vec<_>>(), target)?;
    Ok(lowering.launches.into_iter().flat_map(variants).collect())
}

/// The kernel of a launch, and what plans make of it where it can add to its output.
fn variants(launch: Launch) -> impl Iterator<Item = Kernel> {
    let adds = launch.adds.then(|| launch.kernel.clone().define("ADD").size("adds", 1));
    std::iter::once(launch.kernel).chain(adds)
}
