//! An op of one's own: shader, backward rule, reference, a check of all three on every adapter, and training with it.
//!
//! ```text
//! cargo run --release --example custom_op
//! ```

use std::sync::Arc;

use everygpu::graph::Graph;
use everygpu::kernel::{Kernel, Lowering, Shader, Step, Target};
use everygpu::kernel::{elementwise, input, output};
use everygpu::nn::{Layer, Mode};
use everygpu::op::{Backward, Emit, Example, Op, Reference, ValueId, expect_equal_shapes, expect_f32};
use everygpu::prelude::*;
use everygpu::self_test::check_op;

/// y = max(x, 0)² (So et al., "Primer: Searching for Efficient Transformers", 2021).
#[derive(Debug, Clone, Copy)]
pub struct SquaredRelu;

/// The kernel: one invocation an element. `elementwise` calls `element` for each index.
const SQUARED_RELU: Shader = Shader::new(
    "squared_relu",
    "#import elementwise
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;

    fn element(i: u32) {
        let v = max(x[i], 0.0);
        y[i] = v * v;
    }",
);

impl Op for SquaredRelu {
    fn name(&self) -> &'static str {
        "squared_relu"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x] = expect_f32(self.name(), inputs)?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(SQUARED_RELU, 64);
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), output(0)]).into())
    }

    fn backward(&self, emit: &mut dyn Emit, node: &Backward<'_>) -> Result<Vec<Option<ValueId>>> {
        let dy = node.dy()?;
        Ok(vec![node.when(0, || emit.emit(SquaredReluGrad, &[node.inputs[0], dy]))?])
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].map(|x| x.max(0.0).powi(2))]
    }
}

/// (x, dy) → dx = 2 max(x, 0) dy: a backward kernel is an op, too.
#[derive(Debug, Clone, Copy)]
pub struct SquaredReluGrad;

const SQUARED_RELU_GRAD: Shader = Shader::new(
    "squared_relu_grad",
    "#import elementwise
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read> dy: array<f32>;
    @group(0) @binding(2) var<storage, read_write> dx: array<f32>;

    fn element(i: u32) {
        dx[i] = 2.0 * max(x[i], 0.0) * dy[i];
    }",
);

impl Op for SquaredReluGrad {
    fn name(&self) -> &'static str {
        "squared_relu_grad"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [x, dy] = expect_f32(self.name(), inputs)?;
        expect_equal_shapes(self.name(), &x, &dy)?;
        Ok(vec![TensorType::f32(x)])
    }

    fn lower(&self, inputs: &[&TensorType], _: &[&TensorType], _: &Target) -> Result<Lowering> {
        let kernel = Kernel::linear(SQUARED_RELU_GRAD, 64);
        Ok(elementwise(kernel, inputs[0].shape.elements(), vec![input(0), input(1), output(0)]).into())
    }

    fn reference(&self, inputs: &[&Reference], _: &Step) -> Vec<Reference> {
        vec![inputs[0].zip(inputs[1], |x, dy| 2.0 * x.max(0.0) * dy)]
    }
}

/// As a layer, it may stand in any network.
impl Layer for SquaredRelu {
    fn kind(&self) -> &'static str {
        "squared_relu"
    }

    fn forward(&self, graph: &mut Graph, x: ValueId, _: Mode) -> Result<ValueId> {
        graph.apply(*self, &[x])
    }
}

/// Shapes to check it with: a single element, sizes beside the workgroup's 64, more than one dimension.
pub fn examples() -> Vec<Example> {
    vec![
        Example::new(SquaredRelu, [&[1]]),
        Example::new(SquaredRelu, [&[63]]),
        Example::new(SquaredRelu, [&[5, 13]]),
        Example::new(SquaredReluGrad, [&[5, 13], &[5, 13]]),
    ]
}

/// Checks the op, then trains with it.
pub fn main() -> Result<()> {
    let adapters = Adapters::discover()?.select("auto")?;
    for adapter in &adapters {
        let error = check_op(adapter, &examples())?;
        println!("{}: squared_relu and its gradient are right, within {error:.3} of the tolerance", adapter.label());
    }

    let data = Normalizer::Scale { factor: 1.0 / 16.0 }.apply(digits()?)?;
    let (train, held_out) = split(&data, 0.2, 0, true)?;
    let (train, held_out): (Arc<dyn Dataset>, Arc<dyn Dataset>) = (Arc::new(train), Arc::new(held_out));
    let model = Sequential::new([1, 8, 8]).flatten().linear(64).layer(SquaredRelu).linear(10);
    let options = TrainOptions { epochs: 1, batch: 32, schedule: Schedule::constant(5e-3), ..TrainOptions::default() };
    let mut trainer = Trainer::builder(Task::classification(model), options).adapters(&adapters).start()?;
    trainer.fit(&train, None, &mut |_: &Progress<'_>| Flow::Continue)?;
    let score = trainer.evaluate(&held_out)?;
    println!("held-out accuracy after one epoch: {:.2}%", 100.0 * score.accuracy().unwrap_or(f64::NAN));
    Ok(())
}
