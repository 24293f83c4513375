//! The self-test: whether an adapter computes what training needs of it. Drivers exist that return zeros or garbage for
//! some sizes without an error; each adapter therefore runs a short set of kernels against their f64 references before
//! it is trusted with a batch. One that fails is left out, with a message that names the kernel and the error.
//!
//! It stands here and not beside the devices, because these see plans, never ops or graphs.

mod cases;
mod kept;
mod ops;
#[cfg(test)]
mod tests;
mod update;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Instant;

pub use kept::keep_verdicts_in;
pub use ops::check_op;
#[cfg(feature = "test-support")]
pub use ops::{OpCheck, projection_error};

use cases::{Case, cases};
use update::{Updated, updated};

use crate::error::{Error, Result};
use crate::gpu::{Adapter, Device, Duty, Engine, MicroBatch};
use crate::graph::Graph;
use crate::kernel::Step;
use crate::op::Tolerance;
use crate::optim::Optimizer;
use crate::plan::{Dispatch, Layout, Plan, Storage};
use crate::tensor::DType;

/// Wider than in our tests: a card that we have not seen may sum in another order or round intermediate results
/// otherwise, which must not cost it its place. What we look for is off by orders of magnitude.
const TOLERANCE: Tolerance = Tolerance::of(DType::F32).times(8.0);

/// What the self-test found of one kernel.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct KernelCheck {
    /// The kernel, with the shapes that it ran on.
    pub kernel: String,
    /// Its largest error in units of the tolerance: at most 1 passes.
    pub error: f64,
    /// The element with that error.
    pub element: usize,
    /// What the adapter computed for it.
    pub got: f32,
    /// What is right.
    pub expected: f64,
}

impl KernelCheck {
    /// Whether the error is within the tolerance.
    pub fn passed(&self) -> bool {
        self.error <= 1.0
    }

    /// Holds `got` against the elements of `expected`.
    fn new(kernel: String, got: &[f32], expected: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let mut worst = Self { kernel, error: -1.0, element: 0, got: f32::NAN, expected: f64::NAN };
        for (element, expected) in expected {
            let got = got[element];
            let error = TOLERANCE.error(f64::from(got), expected);
            if error > worst.error {
                worst = Self { error, element, got, expected, ..worst };
            }
        }
        worst
    }
}

impl fmt::Display for KernelCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, error, element, got, expected } = self;
        match self.passed() {
            true => write!(f, "{kernel}: at {error:.2} of the tolerance"),
            false => {
                write!(f, "{kernel} is off by {error:.3e} × the tolerance (element {element}: {got}, not {expected})")
            }
        }
    }
}

/// An adapter's verdict.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SelfTest {
    /// Each kernel that ran: none where an earlier verdict was taken.
    pub kernels: Vec<KernelCheck>,
    /// Why the test could not be finished, where it could not: a kernel that does not compile, a lost device.
    pub failure: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

impl SelfTest {
    /// That of an adapter which has passed in an earlier process.
    fn known() -> Self {
        Self { kernels: Vec::new(), failure: None, seconds: 0.0 }
    }

    /// Whether the adapter may be used.
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.kernels.iter().all(KernelCheck::passed)
    }

    /// In a word, why the adapter may not be used.
    fn shortcoming(&self) -> &'static str {
        if self.failure.is_some() { "it cannot be tested" } else { "it computes wrongly" }
    }

    /// The kernel with the largest error.
    pub fn worst(&self) -> Option<&KernelCheck> {
        self.kernels.iter().max_by(|a, b| a.error.total_cmp(&b.error))
    }
}

/// One line: the kernel with the largest error, and how many others fail.
impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failure) = &self.failure {
            return f.write_str(failure);
        }
        let Some(worst) = self.worst() else { return f.write_str("passed in an earlier process") };
        let failed = self.kernels.iter().filter(|k| !k.passed()).count();
        match failed {
            0 => write!(f, "{} kernels passed in {:.2} s; largest error: {worst}", self.kernels.len(), self.seconds),
            1 => write!(f, "{worst}"),
            _ => write!(f, "{worst}; {} other kernels are wrong, too", failed - 1),
        }
    }
}

/// An adapter that may not be used, and why.
pub type Rejected = (Adapter, SelfTest);

/// Runs the self-test on a device of `adapter`. A wrong result is no error: the verdict says it.
///
/// # Errors
/// When the adapter cannot be opened, a kernel does not compile, or the device fails.
pub fn self_test(adapter: &Adapter) -> Result<SelfTest> {
    let note = |passes| kept::kept().into_iter().for_each(|kept| kept.note(&identity(adapter), passes));
    // First of all: a driver may end the process.
    note(false);
    let verdict = run(adapter, &|_| {})?;
    if verdict.passed() {
        note(true);
    }
    Ok(verdict)
}

/// What a verdict is about.
fn identity(adapter: &Adapter) -> String {
    let of = (adapter.label(), adapter.backend(), adapter.pci_id(), adapter.driver(), adapter.target());
    format!("{of:?}")
}

/// The self-test; `tamper` sees every dispatch before it is compiled, so that a test of this test can make it wrong.
fn run(adapter: &Adapter, tamper: &dyn Fn(&mut Dispatch)) -> Result<SelfTest> {
    let begin = Instant::now();
    let device = Device::open(adapter, None)?;
    let mut kernels = run_cases(&device, &cases(), tamper)?;
    for optimizer in [Optimizer::adamw(), Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.01 }] {
        let Updated { kernel, got, expected } = updated(&device, &optimizer, tamper)?;
        kernels.push(KernelCheck::new(kernel.to_owned(), &got, expected.into_iter().enumerate()));
    }
    Ok(SelfTest { kernels, failure: None, seconds: begin.elapsed().as_secs_f64() })
}

/// All cases as one plan, which one submission runs.
fn run_cases(device: &Arc<Device>, cases: &[Case], tamper: &dyn Fn(&mut Dispatch)) -> Result<Vec<KernelCheck>> {
    let mut graph = Graph::new();
    cases.iter().try_for_each(|case| case.append(&mut graph))?;
    let layout = Arc::new(Layout::new(&graph, device.target())?);
    let mut plan = Plan::new(&graph, layout.clone(), device.target())?;
    plan.dispatches.iter_mut().for_each(tamper);
    let mut engine = Engine::new(device.clone(), &Storage::new(&layout, 0, false, false), &Duty::Inference)?;
    let mut executable = engine.compile(Arc::new(plan))?;
    let rows = executable.micro_batch() as u32;
    let step = Step { seed: [1, 2], step: 3, first_row: 4, valid: rows, gradient_scale: 0.0, first: 1, reserved: 0 };
    let inputs: Vec<&[u8]> = cases.iter().flat_map(|case| &case.tensors).map(|tensor| tensor.bytes()).collect();
    engine.run(&mut executable, &MicroBatch { step, inputs: &inputs }, None)?;
    // The references are computed while the device runs.
    let expected: Vec<_> = cases.iter().map(|case| case.expected(&step)).collect();
    let outputs = engine.outputs(&mut executable)?;
    let checks = cases.iter().zip(expected).zip(outputs);
    Ok(checks
        .map(|((case, expected), (_, bytes))| {
            KernelCheck::new(case.label(), &bytemuck::pod_collect_to_vec::<u8, f32>(&bytes), expected)
        })
        .collect())
}

/// Tests all of `adapters` at once, each on a thread of its own: those that pass, and those that do not with the
/// verdict. Each of the latter is logged. A verdict holds for the life of the process; with [`keep_verdicts_in`],
/// "passed" holds longer.
///
/// # Errors
/// [`Error::NoAdapter`] when none passes; the message says what each computed wrongly.
pub fn usable(adapters: Vec<Adapter>) -> Result<(Vec<Adapter>, Vec<Rejected>)> {
    static VERDICTS: Mutex<Option<HashMap<String, SelfTest>>> = Mutex::new(None);
    let known = || VERDICTS.lock().unwrap_or_else(PoisonError::into_inner);
    usable_by(adapters, |adapter| {
        let key = identity(adapter);
        if let Some(verdict) = known().as_ref().and_then(|verdicts| verdicts.get(&key)) {
            return Ok(verdict.clone());
        }
        let verdict = match kept::kept() {
            Some(kept) if kept.has_passed(&key) => {
                log::debug!("{} has passed the self-test in an earlier process", adapter.label());
                SelfTest::known()
            }
            _ => self_test(adapter)?,
        };
        known().get_or_insert_default().insert(key, verdict.clone());
        Ok(verdict)
    })
}

/// [`usable`] by any test.
fn usable_by(
    adapters: Vec<Adapter>,
    test: impl Fn(&Adapter) -> Result<SelfTest> + Sync,
) -> Result<(Vec<Adapter>, Vec<Rejected>)> {
    let test = &test;
    let verdicts: Vec<SelfTest> = std::thread::scope(|scope| {
        let start = |adapter| Builder::new().spawn_scoped(scope, move || test(adapter));
        let threads: Vec<_> = adapters.iter().map(start).collect();
        let failed = |failure: String| SelfTest { failure: Some(failure), ..SelfTest::known() };
        let verdict = |thread: std::io::Result<ScopedJoinHandle<'_, Result<SelfTest>>>| match thread.map(|t| t.join()) {
            Ok(Ok(outcome)) => outcome.unwrap_or_else(|error| failed(error.to_string())),
            Ok(Err(_)) => failed("the driver panicked in the self-test".to_owned()),
            Err(error) => failed(format!("no thread could be started for it: {error}")),
        };
        threads.into_iter().map(verdict).collect()
    });
    let (mut passed, mut rejected) = (Vec::new(), Vec::new());
    for (adapter, verdict) in adapters.into_iter().zip(verdicts) {
        if verdict.passed() {
            passed.push(adapter);
        } else {
            log::warn!("{} is left out, {}: {verdict}", adapter.label(), verdict.shortcoming());
            rejected.push((adapter, verdict));
        }
    }
    if passed.is_empty() {
        let told = |(adapter, verdict): &Rejected| format!("{}: {}: {verdict}", adapter.label(), verdict.shortcoming());
        let all = rejected.iter().map(told).collect::<Vec<_>>().join("; ");
        return Err(Error::NoAdapter(if all.is_empty() {
            "no adapter was chosen".to_owned()
        } else {
            format!("none passes the self-test: {all}")
        }));
    }
    Ok((passed, rejected))
}
