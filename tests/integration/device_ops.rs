//! Every op on every adapter: forward and backward results against the f64 references, slots poisoned before each run.
//! (That the references' gradients are right is shown in `gradients`.)

use std::collections::BTreeMap;
use std::sync::Arc;

use everygpu::gpu::{Adapter, Adapters, Device, Engine, MicroBatch, Role};
use everygpu::graph::{Graph, interpret};
use everygpu::op::{Emit, Example, Fill, OPS, Reference, Step, Target, Tiling, Tolerance};
use everygpu::plan::{Layout, Plan, Storage};
use everygpu::rng::Stream;
use everygpu::tensor::{DType, HostTensor, TensorType};

const STEP: Step = Step { seed: [1, 2], step: 3, first_row: 4, valid: 0, gradient_scale: 0.0, reserved: [0; 2] };

/// Every adapter of this machine, opened. Panics without one: these tests need a software adapter at least.
pub fn devices() -> Vec<(Adapter, Arc<Device>)> {
    let adapters = Adapters::discover().expect("the tests need an adapter: ./test.sh installs software ones");
    adapters.iter().map(|a| (a.clone(), Device::open(a, None).expect("the adapter opens"))).collect()
}

/// The example's op, the gradients of its first output where it has any, and the inputs: all as outputs of one graph.
fn graph_of(example: &Example) -> (Graph, Vec<HostTensor>) {
    let mut graph = Graph::new();
    let mut tensors = example.tensors(5);
    let inputs: Vec<_> =
        example.inputs.iter().enumerate().map(|(i, (ty, _))| graph.input(&format!("x{i}"), ty.clone())).collect();
    let outputs = graph.emit_all(example.op.clone(), &inputs).expect("the example's shapes work");
    for (i, output) in outputs.iter().enumerate() {
        graph.output(&format!("y{i}"), *output);
    }
    let y = outputs[0];
    if graph.values()[y.index()].ty.dtype != DType::F32 {
        return (graph, tensors);
    }
    let wrt: Vec<_> =
        inputs.iter().zip(&example.inputs).filter(|(_, (ty, _))| ty.dtype == DType::F32).map(|(v, _)| *v).collect();
    let forward = graph.clone();
    let seed_type = TensorType::f32(graph.shape(y).clone());
    let seed = graph.input("seed", seed_type.clone());
    match graph.differentiate(y, seed, &wrt) {
        Ok(gradients) => {
            for (i, gradient) in gradients.iter().enumerate().filter_map(|(i, g)| Some((i, (*g)?))) {
                graph.output(&format!("dx{i}"), gradient);
            }
            tensors.push(Fill::Normal.tensor(&seed_type, &mut Stream::new(7, "seed")));
            (graph, tensors)
        }
        Err(_) => (forward, tensors),
    }
}

/// The largest error, in units of the tolerance, of each output.
fn errors(device: &Arc<Device>, target: &Target, example: &Example) -> Vec<(String, f64)> {
    let (graph, tensors) = graph_of(example);
    let layout = Arc::new(Layout::new(&graph, target).expect("no parameters"));
    let plan = Arc::new(Plan::new(&graph, layout.clone(), target).expect("the example fits"));
    let storage = Storage::new(&layout, 0, false, false);
    let mut engine = Engine::new(device.clone(), &storage, &Role::Inference).expect("the buffers fit");
    let mut executable = engine.compile(plan.clone()).expect("the kernels compile");
    executable.poison(device).expect("the device works");

    let step = Step { valid: plan.micro_batch as u32, ..STEP };
    let inputs: Vec<&[u8]> = tensors.iter().map(HostTensor::bytes).collect();
    let batch = MicroBatch { step, inputs: &inputs, first: true };
    engine.run(&mut executable, &batch, None).expect("the run works");
    let got = engine.outputs(&mut executable).expect("the outputs are read");

    let references: Vec<Reference> = tensors.iter().map(Reference::from).collect();
    let wanted: Vec<_> = graph.outputs().iter().map(|(_, v)| *v).collect();
    let expected = interpret(&graph, &references, &[], &step, &wanted).expect("the reference runs");
    let names = plan.outputs.iter().map(|o| o.name.clone());
    names
        .zip(got.iter().zip(&expected))
        .map(|(name, ((ty, bytes), reference))| {
            // In f64: u32 values need not fit f32.
            let values: Vec<f64> = match ty.dtype {
                DType::F32 => bytemuck::pod_collect_to_vec::<u8, f32>(bytes).into_iter().map(f64::from).collect(),
                DType::U32 => bytemuck::pod_collect_to_vec::<u8, u32>(bytes).into_iter().map(f64::from).collect(),
            };
            assert_eq!(values.len(), reference.data.len(), "{name}: lengths differ");
            let tolerance = Tolerance::of(ty.dtype);
            let errors = values.iter().zip(&reference.data).map(|(&x, &r)| tolerance.error(x, r));
            (name, errors.fold(0.0, f64::max))
        })
        .collect()
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
                for (output, error) in errors(&device, &target, &example) {
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
