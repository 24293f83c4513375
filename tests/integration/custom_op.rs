//! Ops from outside the crate: the example runs as it stands, and the public check finds what is wrong with an op.

use std::sync::Arc;

use everygpu::gpu::{Duty, Engine, MicroBatch};
use everygpu::graph::Graph;
use everygpu::kernel::{self, Kernel, Lowering, Shader, Step, Target};
use everygpu::op::{Backward, Emit, Example, Op, Reference, ValueId};
use everygpu::plan::{Layout, Plan, Storage};
use everygpu::prelude::*;
use everygpu::self_test::check_op;

use crate::training::{adapters, open};

#[path = "../../examples/custom_op.rs"]
mod example;

#[test]
fn the_example_checks_its_op_and_trains_with_it() {
    example::main().expect("the example works");
}

/// The example's op, with a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Faulty {
    Shader,
    Import,
    Gradient,
}

impl Op for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        example::SquaredRelu.infer(inputs)
    }

    fn lower(&self, inputs: &[&TensorType], outputs: &[&TensorType], target: &Target) -> Result<Lowering> {
        let mut lowering = example::SquaredRelu.lower(inputs, outputs, target)?;
        let source = lowering.launches[0].kernel.shader.source;
        match self {
            Self::Shader => {
                lowering.launches[0].kernel.shader = Shader::new("faulty", source.replace("v * v", "v").leak())
            }
            Self::Import => {
                let kernel = Kernel::linear(Shader::new("faulty", "#import nothing"), 64);
                lowering = kernel::elementwise(kernel, 1, vec![kernel::input(0), kernel::output(0)]).into();
            }
            Self::Gradient => {}
        }
        Ok(lowering)
    }

    fn backward(&self, _: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        Ok(vec![node.when(0, || node.dy())?])
    }

    fn reference(&self, inputs: &[&Reference], step: &Step) -> Vec<Reference> {
        example::SquaredRelu.reference(inputs, step)
    }
}

#[test]
fn faults_are_found_and_named() {
    for adapter in Adapters::discover().expect("the tests need an adapter").iter() {
        let error =
            |fault| check_op(adapter, &[Example::new(fault, [&[65]])]).expect_err("the op is wrong").to_string();
        let wrong = error(Faulty::Shader);
        assert!(
            wrong.starts_with("Shader of f32[65]: y0 is off by ") && wrong.contains("× the tolerance on "),
            "{wrong}"
        );
        let wrong = error(Faulty::Gradient);
        assert!(wrong.starts_with("Gradient of f32[65]: the gradient of output 0 is not the reference's"), "{wrong}");
        let wrong = error(Faulty::Import);
        assert!(wrong.contains("kernel faulty does not compile") && wrong.contains("#import nothing"), "{wrong}");
    }
}

/// Of one workgroup: with FILL each invocation leaves 7s in workgroup memory, else it adds to what is there, which WGSL
/// says is 0.
const WORKGROUP_SUM: Shader = Shader::new(
    "workgroup_sum",
    "@group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    var<workgroup> sums: array<f32, 1024>;

    @compute @workgroup_size(WG)
    fn main(@builtin(local_invocation_index) local: u32) {
        for (var i = local; i < 1024u; i += WG) {
    #ifdef FILL
            sums[i] = 7.0;
    #else
            sums[i] += x[local];
    #endif
        }
        workgroupBarrier();
        y[local] = sums[local] + sums[1023u - local];
    }",
);

/// x → [`WORKGROUP_SUM`]; after one that fills.
#[derive(Debug, Clone, Copy)]
struct WorkgroupSum {
    fill: bool,
}

impl Op for WorkgroupSum {
    fn name(&self) -> &'static str {
        "workgroup_sum"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }

    fn lower(&self, _: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(WORKGROUP_SUM, 64).define_if(self.fill, "FILL");
        Ok(kernel::Launch::new(kernel, vec![kernel::input(0), kernel::output(0)], 1).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].map(|x| x)]
    }
}

#[test]
fn workgroup_memory_starts_as_zeros() {
    for adapter in adapters() {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32([64]));
        for (name, fill) in [("dirty", true), ("sum", false)] {
            let y = graph.apply(WorkgroupSum { fill }, &[x]).unwrap();
            graph.output(name, y);
        }
        let device = open(&adapter, None);
        let layout = Arc::new(Layout::new(&graph, device.target()).unwrap());
        let plan = Arc::new(Plan::new(&graph, layout.clone(), device.target()).unwrap());
        let mut engine = Engine::new(device, &Storage::new(&layout, 0, false, false), &Duty::Inference).unwrap();
        let mut executable = engine.compile(plan).unwrap();
        let step = Step { valid: 64, first: 1, ..Step::default() };
        let inputs: [&[u8]; 1] = [bytemuck::cast_slice(&[1.0_f32; 64])];
        // The driver gives workgroup memory anew, as it was left.
        for _ in 0..3 {
            engine.run(&mut executable, &MicroBatch { step, inputs: &inputs }, None).unwrap();
            let outputs = engine.outputs(&mut executable).unwrap();
            let values = |i: usize| bytemuck::pod_collect_to_vec::<u8, f32>(&outputs[i].1);
            assert_eq!((values(0), values(1)), (vec![14.0; 64], vec![2.0; 64]), "{}", adapter.label());
        }
    }
}
