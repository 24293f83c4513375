//! Every op on every adapter: forward and backward results against the f64 references, slots poisoned before each run.
//! (That the references' gradients are right is shown in `gradients`.)

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use everygpu::gpu::{Adapter, Device, Kind};
use everygpu::kernel::{Target, Tiling};
use everygpu::op::{Example, OPS};
use everygpu::self_test::OpCheck;
use everygpu::tensor::TensorType;

use crate::training::{adapters, open};

/// Every adapter of this machine, opened. Panics without one: these tests need a software adapter at least.
pub fn devices() -> Vec<(Adapter, Arc<Device>)> {
    adapters().into_iter().map(|adapter| (adapter.clone(), open(&adapter, None))).collect()
}

/// The ops to test: `softmax,matmul`, or `all`. Where it is set, every adapter runs every example.
const CHOICE: &str = "EVERYGPU_TEST_OPS";

/// Examples of the ops that are chosen, else of all ops.
fn selected() -> Vec<Example> {
    let names = std::env::var(CHOICE).unwrap_or("all".to_owned());
    let entries = OPS.iter().filter(|entry| names == "all" || names.split(',').any(|name| name == entry.name));
    entries.flat_map(|entry| (entry.examples)()).collect()
}

/// A shader with what it is expanded by.
type Variant = (&'static str, Vec<&'static str>);

/// The variants of shaders that `example` runs on `target`.
fn variants(example: &Example, target: &Target) -> Vec<Variant> {
    let inputs: Vec<&TensorType> = example.inputs.iter().map(|(ty, _)| ty).collect();
    let outputs = example.op.infer(&inputs).expect("the example's shapes work");
    let lowering = example.op.lower(&inputs, &outputs.iter().collect::<Vec<_>>(), target).expect("the example lowers");
    lowering.launches.into_iter().map(|launch| (launch.kernel.shader.name, launch.kernel.defines)).collect()
}

/// Every example on every adapter, with both tilings. Of several software adapters only one runs all, and that is not
/// Mesa's, which compiles a kernel six times as slowly where it has not seen it before. The others run an example that
/// brings a variant of a shader, which shows what their compilers make of it. With `--nocapture` it prints each op's
/// largest error.
#[test]
fn every_op_agrees_with_its_reference_on_every_adapter() {
    let mut failures = Vec::new();
    let mut largest = BTreeMap::new();
    let devices = devices();
    let software = || (0..devices.len()).filter(|&index| devices[index].0.kind() == Kind::Software);
    let fullest = software().find(|&index| !devices[index].0.name().contains("llvmpipe")).or_else(|| software().next());
    let everywhere = std::env::var_os(CHOICE).is_some();
    let mut seen = vec![HashSet::new(); devices.len()];
    for example in selected() {
        let check = OpCheck::new(&example).expect("the op works on the example");
        for (index, (adapter, device)) in devices.iter().enumerate() {
            let all = everywhere || adapter.kind() != Kind::Software || fullest == Some(index);
            for tiling in [Tiling::Registers, Tiling::Workgroup] {
                let target = Target { tiling, ..adapter.target() };
                let known = seen[index].len();
                seen[index].extend(variants(&example, &target));
                if !all && seen[index].len() == known {
                    continue;
                }
                for (output, error) in check.errors(device, &target).expect("the example runs") {
                    let largest = largest.entry((adapter.label(), example.op.name())).or_insert(0.0_f64);
                    *largest = largest.max(error);
                    if error > 1.0 {
                        let shapes: Vec<_> = example.inputs.iter().map(|(ty, _)| ty.to_string()).collect();
                        failures.push(format!(
                            "{} ({}), {tiling:?}: {:?} of {}: {output} is off by {error:.1} × the tolerance",
                            adapter.label(),
                            adapter.driver(),
                            example.op,
                            shapes.join(", ")
                        ));
                    }
                }
            }
        }
    }
    assert!(!largest.is_empty(), "{CHOICE} names no op");
    for ((adapter, op), error) in largest {
        println!("{adapter}: {op} is off by {error:.3} × the tolerance at most");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
