//! What a run leaves in its folder, and on its output.

use super::*;

#[test]
fn the_record_has_a_line_a_step_and_one_an_epoch() {
    let place = Place::with_table("x,y,kind\n1,2,a\n3,4,b\n5,6,a\n7,8,b\n9,1,a\n");
    let ran =
        place.train(&["devices.replicas=3", "train.batch=3", "train.split=\"even\"", "data.validation=\"t.csv\""]);
    let out = ran.well().out;
    assert!(out.contains("epoch   2/2  loss ") && out.contains("held-out accuracy: "), "{out}");
    assert!(!out.contains(['\u{1b}', '\r']), "no terminal, no escape codes: {out:?}");

    let steps = place.lines("runs/t-1/metrics.jsonl");
    assert_eq!(steps.len(), 4);
    for (index, step) in steps.iter().enumerate() {
        assert_eq!((&step["step"], &step["epoch"]), (&index.into(), &(index / 2).into()));
        assert!(["loss", "lr", "gradient_norm", "accuracy"].iter().all(|key| step[key].is_number()), "{step}");
        let shards: Vec<u64> =
            step["shards"].as_array().expect("a list").iter().map(|s| s.as_u64().expect("a count")).collect();
        assert_eq!((shards.len(), shards.iter().sum::<u64>()), (3, [3, 2][index % 2]), "{step}");
        assert_eq!(step["samples"], [3, 2][index % 2]);
        for phase in ["step", "gradients", "update"] {
            assert!(step["seconds"][phase].as_f64().is_some_and(|s| s > 0.0), "{step}");
        }
        let (busy, kernels) = (&step["seconds"]["busy"], &step["seconds"]["kernels"]);
        assert_eq!((busy.as_array().map(Vec::len), kernels.as_array().map(Vec::len)), (Some(3), Some(3)));
        for (busy, kernels) in (0..3).map(|device| (&busy[device], &kernels[device])) {
            assert!(kernels.is_null() || kernels.as_f64() < busy.as_f64(), "{step}");
        }
    }
    let epochs = place.lines("runs/t-1/epochs.jsonl");
    assert_eq!(epochs.iter().map(|e| e["steps"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(4)]);
    assert!(epochs.iter().all(|e| e["validation"]["accuracy"].is_number()), "{epochs:?}");
    assert_eq!(place.lines("runs/t-1/events.jsonl").len(), 0);
    assert_eq!(place.names("runs/t-1/checkpoints").last().map(String::as_str), Some("step-00000004"));
    // What was used is a run file itself.
    place.run(&["plan", "runs/t-1/run.toml"]).well();
}

#[test]
fn a_trace_has_the_kernels_of_every_micro_batch_on_the_devices_clock() {
    let place = Place::with_table("x,y,kind\n1,2,a\n3,4,b\n5,6,a\n7,8,b\n9,1,a\n");
    let settings = ["train.epochs=2", "train.batch=5", "train.micro_batch=2"].map(|s| ["--set", s]).concat();
    place.run(&[&["train", "t.toml", "--trace", "trace.json"], settings.as_slice()].concat()).well();
    let events: Vec<Value> = serde_json::from_str(&place.read("trace.json")).expect("it is JSON");
    let track = |end: &str| {
        let name = |event: &&Value| event["args"]["name"].as_str().is_some_and(|name| name.ends_with(end));
        let id = events.iter().find(name).map(|event| event["tid"].clone());
        let spans = events.iter().filter(|event| event["ph"] == "X" && Some(&event["tid"]) == id.as_ref());
        spans.map(|e| (e["name"].clone(), e["args"]["rows"].clone(), e["ts"].as_f64(), e["dur"].as_f64())).collect()
    };
    let kernels: Vec<(Value, Value, Option<f64>, Option<f64>)> = track(" kernels");
    let rows: Vec<_> = kernels.iter().filter(|k| k.0 == "micro-batch").map(|k| k.1.as_u64()).collect();
    let timed = |step: &&Value| step["seconds"]["kernels"][0].is_number();
    let steps = place.lines("runs/t-1/metrics.jsonl").iter().filter(timed).count();
    assert_eq!(rows, [Some(2), Some(2), Some(1)].repeat(steps), "{kernels:?}");
    assert_eq!(kernels.iter().filter(|k| k.0 == "update").count(), steps, "{kernels:?}");
    // On the host's clock, each lies within a step.
    let whole = track("steps");
    for kernel in &kernels {
        let within = |step: &&(Value, Value, Option<f64>, Option<f64>)| {
            step.2 <= kernel.2 && kernel.2.zip(kernel.3).map(|(a, b)| a + b) <= step.2.zip(step.3).map(|(a, b)| a + b)
        };
        assert!(whole.iter().any(|step| within(&step)), "{kernel:?} in {whole:?}");
    }
}

#[test]
fn gradients_that_are_not_finite_stop_the_training_and_stand_in_the_record() {
    let place = Place::with_table("x,y,kind\n1,2,a\n3,4,b\n5,6,a\n");
    let settings = ["optimizer.kind=\"sgd\"", "optimizer.lr=1e38", "train.epochs=1000", "train.nonfinite_limit=3"];
    let ran = place.train(&settings);
    ran.failed(&["not finite in 3 updates in a row", "smaller learning rate", "runs/t-1"]);
    let steps = place.lines("runs/t-1/metrics.jsonl");
    let applied: Vec<_> = steps.iter().map(|s| s["applied"].as_bool().expect("a flag")).collect();
    assert!(applied.len() > 3 && applied[0] && !applied[applied.len() - 3..].iter().any(|a| *a), "{applied:?}");
    assert!(ran.error.contains(&format!("up to step {}", steps.len() - 1)), "{} {}", ran.error, steps.len());
    assert_eq!(ran.out.matches("the update was skipped").count(), applied.iter().filter(|a| !**a).count());
}

/// Never so many in a row that they end the training before its last epoch.
#[test]
fn a_training_without_a_single_update_is_a_failure() {
    let place = Place::with_table("x,y,kind\n3e38,3e38,a\n-3e38,3e38,b\n3e38,-3e38,a\n");
    let told = ["none of the updates of 6 steps was applied", "data.scale"];
    place.train(&["train.epochs=3"]).failed(&[&told[..], &["the run's files are in runs/t-1"]].concat());
    assert!(place.lines("runs/t-1/metrics.jsonl").iter().all(|line| line["applied"] == false));
    for command in [
        &["export", "runs/t-1", "w.safetensors"][..],
        &["predict", "runs/t-1", "--input", "t.csv"],
        &["eval", "runs/t-1", "--data", "t.csv"],
        &["train", "--resume", "runs/t-1", "--set", "train.epochs=4"],
    ] {
        place.run(command).failed(&["none of the updates of ", "was applied"]);
    }
    assert!(!place.path("w.safetensors").exists());
}

#[test]
fn a_plan_writes_nothing() {
    let place = Place::new();
    place.write("a.txt", "the cat sat on the mat");
    let data = "[data]\nformat = \"text\"\npath = \"a.txt\"\nlength = 4\ntokenizer = \"characters\"\n";
    let model = "cache = \"a.tokens\"\nvalidation = \"none\"\n[model]\nlayers = [{ kind = \"embedding\", vocabulary = 10, width = 10 }]\n";
    place.write("t.toml", format!("{data}{model}"));
    let before = place.names("");
    place.run(&["plan", "t.toml"]).well();
    assert_eq!(place.names(""), before);
}

/// As on a full disk, what cannot be written is told, and what is there is whole.
#[cfg(unix)]
#[test]
fn files_that_may_not_grow_end_the_training_with_a_message() {
    let place = Place::with_table(TABLE);
    let limited = |blocks: u32, command: &str| {
        let line = format!("ulimit -f {blocks} && exec {} {command}", env!("CARGO_BIN_EXE_everygpu"));
        let mut shell = std::process::Command::new("sh");
        with_one_driver(&mut shell);
        // Mesa's own files are not to be the first that are too large.
        shell.env("MESA_SHADER_CACHE_DISABLE", "true");
        Ran::of(shell.current_dir(place.path("")).args(["-c", &line]).output().expect("there is a shell"))
    };
    // 16 KiB: a checkpoint has more.
    let layers = "--set 'model.layers=[{kind=\"linear\",out=2000},{kind=\"linear\",out=2}]'";
    let ran = limited(32, &format!("train t.toml {layers}"));
    ran.failed(&["the run's files are in runs/t-1", "weights.safetensors", "File too large"]);
    assert_eq!(place.names("runs/t-1/checkpoints"), [""; 0]);
    assert_eq!(place.lines("runs/t-1/metrics.jsonl").len(), 2, "whole lines");
    // Not even the run file: then there is no run.
    limited(1, "train t.toml").failed(&["runs/t-2", "run.toml", "File too large"]);
    assert_eq!(place.names("runs"), ["t-1"]);
}

#[test]
fn two_runs_at_once_do_not_share_a_folder() {
    let place = Place::with_table(TABLE);
    let start = || {
        let quiet = std::process::Stdio::null();
        place.program(&["train", "t.toml"]).stdout(quiet).spawn().expect("the binary runs")
    };
    for mut run in [start(), start(), start()] {
        assert!(run.wait().expect("it ends").success());
    }
    assert_eq!(place.names("runs"), ["t-1", "t-2", "t-3"]);
    for run in 1..=3 {
        assert_eq!(place.lines(&format!("runs/t-{run}/metrics.jsonl")).len(), 4);
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_no_training() {
    use std::io::{BufRead, BufReader};
    let place = Place::with_table(TABLE);
    for arguments in [&["train", "t.toml"][..], &["plan", "t.toml"], &["adapters"]] {
        let piped = std::process::Stdio::piped;
        let mut run = place.program(arguments).stdout(piped()).stderr(piped()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(run.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        Ran::of(run.wait_with_output().expect("it ends")).well();
    }
    assert_eq!(place.lines("runs/t-1/epochs.jsonl").len(), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_fails_where_it_is_the_result() {
    let place = Place::with_table(TABLE);
    let full = |arguments: &[&str]| {
        let file = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        Ran::of(place.program(arguments).stdout(file).output().expect("the binary runs"))
    };
    full(&["train", "t.toml"]).well();
    full(&["eval", "runs/t-1", "--data", "t.csv"]).failed(&["No space left"]);
    full(&["predict", "runs/t-1", "--input", "t.csv"]).failed(&["No space left"]);
}

#[test]
fn settings_without_effect_are_told_once_before_the_training() {
    let place = Place::with_table(TABLE);
    let good = place.read("t.toml");
    let group = "[[optimizer.groups]]\nmatch = \"*.bias\"\nlr_scale = 0";
    place.write("t.toml", format!("{good}gradient_compression = \"f16\"\n{group}\n"));
    let ran = place.train(&[]);
    let told = ["t.toml:13: optimizer.groups[1].lr_scale keeps", "t.toml:10: train.gradient_compression has no effect"];
    let lines: Vec<_> = ran.error.lines().collect();
    assert!(ran.code == Some(0) && lines.len() == 2, "{ran:#?}");
    assert!(lines.iter().zip(told).all(|(line, told)| line.contains("WARN") && line.contains(told)), "{ran:#?}");
    place.run(&["train", "t.toml", "--replicas", "2", "--set", "optimizer.groups=[]"]).well();
    for command in [&["plan", "t.toml"][..], &["eval", "runs/t-1", "--data", "t.csv"]] {
        place.run(command).well();
    }
}
