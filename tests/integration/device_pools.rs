//! What random inputs do not show of pools, on every adapter: a NaN wins, the first of equal maxima gets the gradient.

use std::sync::Arc;

use everygpu::gpu::{Duty, Engine, MicroBatch};
use everygpu::graph::Graph;
use everygpu::kernel::Step;
use everygpu::op::{Emit, MaxPool2d, Pool};
use everygpu::plan::{Layout, Plan, Storage};
use everygpu::tensor::TensorType;

use crate::device_ops::devices;

const NAN: f32 = f32::NAN;
/// Windows of 2×2: equal maxima, a NaN last, a NaN first, two infinities.
const X: [f32; 16] =
    [3.0, 3.0, 1.0, 2.0, 3.0, 3.0, 0.0, NAN, NAN, 1.0, f32::NEG_INFINITY, -5.0, 9.0, NAN, f32::INFINITY, 7.0];
const DX: [f32; 16] = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0];

#[test]
fn a_nan_wins_and_the_first_maximum_gets_the_gradient() {
    let mut graph = Graph::new();
    let x = graph.input("x", TensorType::f32([1, 1, 4, 4]));
    let seed = graph.input("seed", TensorType::f32([1, 1, 2, 2]));
    let y = graph.emit_all(Arc::new(MaxPool2d(Pool::new([2, 2]))), &[x]).unwrap()[0];
    let dx = graph.differentiate(y, seed, &[x]).unwrap()[0].unwrap();
    graph.output("y", y);
    graph.output("dx", dx);
    for (adapter, device) in devices() {
        let target = adapter.target();
        let layout = Arc::new(Layout::new(&graph, &target).unwrap());
        let plan = Arc::new(Plan::new(&graph, layout.clone(), &target).unwrap());
        let storage = Storage::new(&layout, 0, false, false);
        let mut engine = Engine::new(device, &storage, &Duty::Inference).unwrap();
        let mut executable = engine.compile(plan).unwrap();
        let inputs: [&[u8]; 2] = [bytemuck::cast_slice(&X), bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, 4.0])];
        let batch = MicroBatch { step: Step { valid: 1, first: 1, ..Step::default() }, inputs: &inputs };
        engine.run(&mut executable, &batch, None).unwrap();
        let outputs = engine.outputs(&mut executable).unwrap();
        let values = |i: usize| bytemuck::pod_collect_to_vec::<u8, f32>(&outputs[i].1);
        let y = values(0);
        assert!(y[1].is_nan() && y[2].is_nan(), "{}: {y:?}", adapter.label());
        assert_eq!([y[0], y[3]], [3.0, f32::INFINITY], "{}", adapter.label());
        assert_eq!(values(1), DX, "{}", adapter.label());
    }
}
