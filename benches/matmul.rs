//! Matrix products by both tilings on every adapter: GFLOP/s, medians of alternating rounds.
//!
//! `cargo bench --all-features --bench matmul` measures; with `--test` every case runs once, with one product.

use std::sync::Arc;
use std::time::Instant;

use everygpu::gpu::{Adapters, Device, Duty, Engine, Executable, MicroBatch};
use everygpu::graph::{Graph, Init};
use everygpu::kernel::{Step, Target, Tiling};
use everygpu::op::MatMul;
use everygpu::plan::{Layout, Plan, Storage};

const NN: MatMul = MatMul { transpose_a: false, transpose_b: false, bias: false, activation: None };
const TN: MatMul = MatMul { transpose_a: true, ..NN };
const NT: MatMul = MatMul { transpose_b: true, ..NN };

/// (op, a, b, products in a run): the last to make the submission's own cost small.
const CASES: [(MatMul, [usize; 2], [usize; 2], usize); 10] = [
    (NN, [1024, 1024], [1024, 1024], 1),
    (NN, [256, 512], [512, 512], 8),
    (NT, [256, 512], [512, 512], 8),
    (TN, [256, 512], [256, 512], 8),
    (NN, [64, 784], [784, 512], 32),
    (TN, [64, 784], [64, 512], 16),
    (NT, [64, 512], [784, 512], 32),
    (NN, [256, 128], [128, 10], 64),
    (TN, [2048, 128], [2048, 10], 32),
    (NN, [1, 4096], [4096, 1000], 16),
];

/// One tiling of one case, ready to run.
struct Candidate {
    engine: Engine,
    executable: Executable,
    seconds: Vec<f64>,
}

impl Candidate {
    fn new(device: &Arc<Device>, target: &Target, case: &(MatMul, [usize; 2], [usize; 2], usize)) -> Self {
        let (op, a, b, products) = *case;
        let mut graph = Graph::new();
        let a = graph.parameter("a", a, Init::Zeros).expect("a new name");
        let b = graph.parameter("b", b, Init::Zeros).expect("a new name");
        for i in 0..products {
            let y = graph.apply(op, &[a, b]).expect("the shapes fit");
            graph.output(&format!("y{i}"), y);
        }
        let layout = Arc::new(Layout::new(&graph, target).expect("the parameters fit"));
        let plan = Arc::new(Plan::new(&graph, layout.clone(), target).expect("the product fits"));
        let engine = Engine::new(device.clone(), &Storage::new(&layout, 1, false, false), &Duty::Inference);
        let engine = engine.expect("the buffers fit");
        let executable = engine.compile(plan).expect("the kernels compile");
        Self { engine, executable, seconds: Vec::new() }
    }

    /// Times one run, from submission to completion.
    fn run(&mut self) {
        let step = Step { valid: 1, ..Step::default() };
        let batch = MicroBatch { step, inputs: &[] };
        let begin = Instant::now();
        self.engine.run(&mut self.executable, &batch, None).expect("the run works");
        self.engine.statistics().expect("the device works");
        self.seconds.push(begin.elapsed().as_secs_f64());
    }
}

fn main() {
    let is_test = std::env::args().any(|a| a == "--test");
    let rounds = if is_test { 1 } else { 7 };
    for adapter in Adapters::discover().expect("an adapter is needed").iter() {
        println!("{} ({})", adapter.label(), adapter.driver());
        let device = Device::open(adapter, None).expect("the adapter opens");
        for mut case in CASES {
            if is_test {
                case.3 = 1;
            }
            let mut candidates = [Tiling::Registers, Tiling::Workgroup]
                .map(|tiling| Candidate::new(&device, &Target { tiling, ..adapter.target() }, &case));
            if !is_test {
                // The first run, which compiles and touches memory, does not count.
                candidates.iter_mut().for_each(Candidate::run);
                candidates.iter_mut().for_each(|c| c.seconds.clear());
            }
            for _ in 0..rounds {
                candidates.iter_mut().for_each(Candidate::run);
            }
            let (op, a, b, products) = case;
            let n = if op.transpose_b { b[0] } else { b[1] };
            let operations = (2 * a[0] * a[1] * n * products) as f64;
            let [registers, workgroup] = candidates.map(|mut c| {
                c.seconds.sort_by(f64::total_cmp);
                operations / c.seconds[rounds / 2] / 1e9
            });
            let flag = |transposed| if transposed { "ᵀ" } else { "" };
            let product = format!("{a:?}{} · {b:?}{}", flag(op.transpose_a), flag(op.transpose_b));
            println!("  {product:30} registers {registers:8.2}  workgroup {workgroup:8.2}  GFLOP/s");
        }
    }
}
