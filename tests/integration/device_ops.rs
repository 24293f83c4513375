//! Every op on every adapter: forward and backward results against the f64 references, slots poisoned before each run.
//! (That the references' gradients are right is shown in `gradients`.)

use std::collections::BTreeMap;
use std::sync::Arc;

use everygpu::gpu::{Adapter, Adapters, Device};
use everygpu::kernel::{Target, Tiling};
use everygpu::op::{Example, OPS};
use everygpu::self_test::op_errors;

/// Every adapter of this machine, opened. Panics without one: these tests need a software adapter at least.
pub fn devices() -> Vec<(Adapter, Arc<Device>)> {
    let adapters = Adapters::discover().expect("the tests need an adapter: ./test.sh installs software ones");
    adapters.iter().map(|a| (a.clone(), Device::open(a, None).expect("the adapter opens"))).collect()
}

/// The ops named in `EVERYGPU_TEST_OPS` (`softmax,matmul`), else all.
fn selected() -> Vec<Example> {
    let names = std::env::var("EVERYGPU_TEST_OPS").unwrap_or_default();
    let entries = OPS.iter().filter(|entry| names.is_empty() || names.split(',').any(|name| name == entry.name));
    entries.flat_map(|entry| (entry.examples)()).collect()
}

/// Every example on every adapter. With `--nocapture` it prints each op's largest error.
#[test]
fn every_op_agrees_with_its_reference_on_every_adapter() {
    let mut failures = Vec::new();
    let mut largest = BTreeMap::new();
    for (adapter, device) in devices() {
        for tiling in [Tiling::Registers, Tiling::Workgroup] {
            let target = Target { tiling, ..adapter.target() };
            for example in selected() {
                for (output, error) in op_errors(&device, &target, &example).expect("the example runs") {
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
    for ((adapter, op), error) in largest {
        println!("{adapter}: {op} is off by {error:.3} × the tolerance at most");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
