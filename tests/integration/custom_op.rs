//! Ops from outside the crate: the example runs as it stands, and the public check finds what is wrong with an op.

use everygpu::op::{Backward, Emit, Example, Kernel, Lowering, Op, Reference, Shader, Step, Target, ValueId, kernel};
use everygpu::prelude::*;
use everygpu::train::check_op;

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
