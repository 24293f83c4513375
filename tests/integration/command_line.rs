//! The binary as a user meets it: exit codes, and messages for bad input, for commands that need no adapter.

use std::path::Path;
use std::process::Command;

/// Exit code, standard output and standard error of `everygpu` with these arguments.
fn everygpu(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_everygpu")).args(arguments).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code().expect("it was not killed"), text(output.stdout), text(output.stderr))
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).display().to_string()
}

#[test]
fn wrong_usage_exits_with_2_and_help_with_0() {
    for arguments in [&["train"][..], &["nothing"], &["plan", "run.toml", "--micro-batch", "0"], &[]] {
        assert_eq!(everygpu(arguments).0, 2, "{arguments:?}");
    }
    for command in ["adapters", "demo", "train", "eval", "predict", "plan", "tune", "shaders"] {
        let (code, out, _) = everygpu(&[command, "--help"]);
        assert!(code == 0 && out.contains("Usage:"), "{command}: {out}");
    }
}

#[test]
fn a_failure_exits_with_1_and_one_line() {
    let digits = example("digits.toml");
    for (arguments, expected) in [
        (&["train", "no.toml"][..], "error: no.toml: "),
        (
            &["plan", &digits, "--set", "train.batch=0"],
            "error: --set train.batch=0: train.batch: expected a whole number of at least 1, got 0\n",
        ),
        (
            &["train", &digits, "--set", "optimizer.learn_rate=1"],
            "error: --set optimizer.learn_rate=1: unknown key 'optimizer.learn_rate'; did you mean 'optimizer.lr'?\n",
        ),
        (
            &["plan", &digits, "--set", "model.layers=[\"flatten\", {kind=\"conv2d\", out=1, kernel=3}]"],
            "error: layer 2 (conv2d): expected samples of shape [channels, height, width], got [64]; a reshape layer in \
             front can make them so\n",
        ),
        (&["plan", &digits, "--micro-batch", "4000000000"], "error: WebGPU's default limits: "),
    ] {
        let (code, _, error) = everygpu(arguments);
        assert_eq!(code, 1, "{error}");
        assert!(error.starts_with(expected) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn the_plan_is_printed_with_its_bytes() {
    let (code, out, error) = everygpu(&["plan", &example("digits.toml"), "--micro-batch", "7"]);
    assert_eq!(code, 0, "{error}");
    for part in ["input      input = f32[7, 1, 8, 8]", "dispatches a micro-batch", "bucket 0: ", "total for training"] {
        assert!(out.contains(part), "{part}\n{out}");
    }
}

#[test]
fn a_plan_needs_no_data_where_the_run_file_tells_the_shape() {
    let (code, out, error) = everygpu(&["plan", &example("mnist.toml"), "--set", "data.dir=nowhere"]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("going by model.input") && out.contains("f32[64, 1, 28, 28]"), "{error}");
}

#[test]
fn every_shader_is_dumped_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, error) = everygpu(&["shaders", "--dump", &folder.path().display().to_string()]);
    assert_eq!(code, 0, "{error}");
    let mut sources: Vec<String> = std::fs::read_dir(folder.path())
        .expect("it was made")
        .map(|file| std::fs::read_to_string(file.expect("readable").path()).expect("readable"))
        .collect();
    let count = sources.len();
    sources.sort_unstable();
    sources.dedup();
    assert!(count > 50 && sources.len() == count, "{count} files, {} distinct", sources.len());
}
