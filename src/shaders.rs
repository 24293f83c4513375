//! Every kernel that the crate can put on a device, for tools that check shaders: the tests, `everygpu shaders --dump`.

use crate::error::Result;
use crate::op::{Example, Kernel, OPS, Target};
use crate::tensor::TensorType;

/// The kernels of every op's examples on `target`, in table order; the same kernel may come several times.
///
/// # Errors
/// When an example does not lower: a bug in its op.
pub fn all_kernels(target: &Target) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for example in OPS.iter().flat_map(|entry| (entry.examples)()) {
        kernels.extend(example_kernels(&example, target)?);
    }
    Ok(kernels)
}

fn example_kernels(example: &Example, target: &Target) -> Result<Vec<Kernel>> {
    let inputs: Vec<&TensorType> = example.inputs.iter().map(|(ty, _)| ty).collect();
    let outputs = example.op.infer(&inputs)?;
    let lowering = example.op.lower(&inputs, &outputs.iter().collect::<Vec<_>>(), target)?;
    Ok(lowering.launches.into_iter().map(|launch| launch.kernel).collect())
}
