//! ONNX models against the f64 references, run by onnxruntime. Where Python has no onnxruntime, these tests say so and
//! pass.

mod models;
mod ops;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use everygpu::checkpoint::{write_atomic, write_tensors};
use everygpu::tensor::{HostTensor, Named};

/// Named tensors.
pub type Tensors = Named<HostTensor>;

/// A model, and what it is to give.
pub struct Case {
    /// Its name, for messages.
    pub name: String,
    /// The ONNX file.
    pub model: Vec<u8>,
    /// Inputs and the outputs for them, any number of times.
    pub runs: Vec<[Tensors; 2]>,
}

/// `scripts/check_onnx.py` in a Python that has onnxruntime: that of `EVERYGPU_PYTHON`, of test.sh, or of the system.
pub fn checker() -> Option<Command> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let command = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.arg(root.join("scripts/check_onnx.py"));
        command
    };
    let works = |python: &PathBuf| {
        let ran = command(python).stdout(Stdio::null()).stderr(Stdio::null()).status();
        ran.is_ok_and(|status| status.success())
    };
    let find = || {
        let given = std::env::var_os("EVERYGPU_PYTHON").map(PathBuf::from);
        let found = given.into_iter().chain([root.join("target/python/bin/python"), "python3".into()]).find(works);
        if found.is_none() {
            // Not through a macro whose output the test runner keeps to itself.
            let _ = writeln!(std::io::stderr(), "NOT TESTED: ONNX models (no Python with onnx and onnxruntime)");
        }
        found
    };
    PYTHON.get_or_init(find).as_ref().map(command)
}

/// Has all of `cases` checked at once: starting Python is what takes time.
#[track_caller]
pub fn check(cases: &[Case]) {
    let Some(mut checker) = checker() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    checker.current_dir(folder.path());
    for case in cases {
        let model = format!("{}.onnx", case.name);
        write_atomic(folder.path().join(&model), &case.model).expect("writable");
        for (run, tensors) in case.runs.iter().enumerate() {
            let files = ["in", "out"].map(|what| format!("{}-{run}.{what}", case.name));
            for (file, tensors) in files.iter().zip(tensors) {
                write_tensors(folder.path().join(file), tensors, &[]).expect("writable");
            }
            checker.arg(&model).args(files);
        }
    }
    let output = checker.output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The cases are not compared with themselves.
#[test]
fn a_wrong_output_is_seen() {
    let Some(mut checker) = checker() else { return };
    let mut case = models::linear();
    let [_, expected] = &mut case.runs[0];
    let prediction = expected.get_mut("prediction").expect("it is there");
    let values = prediction.as_f32().expect("floats").iter().map(|v| v + 3e-4).collect();
    *prediction = HostTensor::f32(prediction.shape().clone(), values).expect("the same shape");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_atomic(path("m"), &case.model).expect("writable");
    write_tensors(path("in"), &case.runs[0][0], &[]).expect("writable");
    write_tensors(path("out"), &case.runs[0][1], &[]).expect("writable");
    let output = checker.args([path("m"), path("in"), path("out")]).output().expect("Python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("prediction is off by"), "{said}");
}
