//! Training that is interrupted: by a signal, which it obeys, or by one that it cannot see.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::*;

/// A place with a training of many steps over one replica or more.
fn long(epochs: u64) -> Place {
    let table: String = (0..40).map(|i| format!("{},{},{}\n", i % 7, (i * 5) % 11, ["a", "b"][i % 2])).collect();
    let place = Place::with_table(&format!("x,y,kind\n{table}"));
    let run = place.read("t.toml").replace("epochs = 2", &format!("epochs = {epochs}\ndeterministic = true"));
    place.write("t.toml", run.replace("batch = 2", "batch = 5\nsplit = \"even\"\ncheckpoint_every = 1"));
    place
}

fn start(place: &Place, arguments: &[&str]) -> Child {
    let mut program = place.program(arguments);
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("there is a kill command");
    assert!(sent.success());
}

/// Waits until `done`, at most a minute.
fn wait_until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a whole checkpoint is in `folder`.
fn has_checkpoint(place: &Place, folder: &str) -> bool {
    place.names(folder).iter().any(|name| name.starts_with("step-"))
}

/// A training that does not end by itself, and has saved its first checkpoint.
fn begun() -> (Place, Child) {
    let place = long(1_000_000);
    let run = start(&place, &["train", "t.toml"]);
    wait_until(|| has_checkpoint(&place, "runs/t-1/checkpoints"));
    (place, run)
}

fn steps_of(place: &Place, file: &str) -> Vec<u64> {
    place.lines(file).iter().map(|line| line["step"].as_u64().expect("a count")).collect()
}

#[test]
fn signals_end_the_training_after_the_step_and_say_how_to_go_on() {
    for name in ["-INT", "-TERM"] {
        let place = long(1_000_000);
        let run = start(&place, &["train", "t.toml", "--set", "output.dir=a run's"]);
        wait_until(|| has_checkpoint(&place, "a run's/t-1/checkpoints"));
        signal(&run, name);
        let ran = Ran::of(run.wait_with_output().expect("it ends"));
        let (notice, last) = ran.error.trim().split_once('\n').expect("two lines");
        assert!(ran.code == Some(1) && notice.contains("finishing the step and saving"), "{ran:#?}");
        let (front, command) = last.split_once("; go on with: ").expect("it says how");
        let step: usize = front.rsplit(' ').next().expect("the step").parse().expect("a number");
        assert_eq!(steps_of(&place, "a run's/t-1/metrics.jsonl").len(), step);

        // What it says works as it stands, in a shell.
        let epochs = step / 8 + 1;
        let shell = format!("{command} --set train.epochs={epochs}");
        let mut sh = Command::new("sh");
        with_one_driver(&mut sh);
        Ran::of(sh.current_dir(place.path("")).args(["-c", &shell]).output().expect("there is a shell")).well();
        let steps = steps_of(&place, "a run's/t-1/metrics.jsonl");
        assert_eq!(steps, (0..epochs as u64 * 8).collect::<Vec<_>>());
    }
}

/// Reads what the program says until it has obeyed a first signal.
fn read_notice(error: &mut impl BufRead) {
    let mut line = String::new();
    while !line.contains("finishing the step and saving") {
        line.clear();
        assert!(error.read_line(&mut line).expect("UTF-8") > 0, "the program ended without a word");
    }
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let place = Place::with_table(TABLE);
    // One endless step: the first signal waits for it.
    let layers = "model.layers=[{kind=\"linear\",out=4000},{kind=\"linear\",out=4000},{kind=\"linear\",out=2}]";
    let table: String = (0..4000).map(|i| format!("1,{i},{}\n", ["a", "b"][i % 2])).collect();
    place.write("t.csv", format!("x,y,kind\n{table}"));
    let mut run = start(&place, &["train", "t.toml", "--set", layers, "--set", "train.batch=4000"]);
    // What it says of its devices comes when it listens to signals.
    let mut out = BufReader::new(run.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    while !line.contains("device(s)") {
        line.clear();
        assert!(out.read_line(&mut line).expect("UTF-8") > 0, "the program ended before it trained");
    }
    signal(&run, "-INT");
    let mut error = BufReader::new(run.stderr.take().expect("it is a pipe"));
    read_notice(&mut error);
    // Until here it is taken for the same signal once more.
    std::thread::sleep(Duration::from_millis(600));
    assert!(run.try_wait().expect("a child").is_none(), "the step has ended by itself");
    signal(&run, "-INT");
    assert_eq!(run.wait().expect("it ends").code(), Some(1));
    // After the step it would have said how to go on, and saved.
    let mut rest = String::new();
    error.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, "");
    assert!(!has_checkpoint(&place, "runs/t-1/checkpoints"), "it has done the step");
}

#[test]
fn a_signal_that_comes_several_times_at_once_is_one() {
    let (_place, run) = begun();
    // As from a terminal and from wrappers: nobody presses so fast. The run may have ended at the first.
    let thrice = format!("for i in 1 2 3; do kill -INT {} 2>/dev/null; sleep 0.003; done; true", run.id());
    assert!(Command::new("sh").args(["-c", &thrice]).status().expect("there is a shell").success());
    let ran = Ran::of(run.wait_with_output().expect("it ends"));
    assert!(ran.code == Some(1) && ran.error.contains("; go on with: "), "{ran:#?}");
    assert_eq!(ran.error.matches("finishing the step and saving").count(), 1, "{ran:#?}");
}

#[test]
fn a_killed_run_goes_on_bit_by_bit_as_if_it_had_not_been() {
    let epochs = 24;
    let undisturbed = long(epochs);
    undisturbed.run(&["train", "t.toml"]).well();

    let place = long(epochs);
    let mut arguments = vec!["train", "t.toml"];
    let mut done = 0;
    for round in 0..5 {
        let mut run = start(&place, &arguments);
        let newest =
            || place.names("runs/t-1/checkpoints").iter().filter_map(|n| n.strip_prefix("step-")?.parse().ok()).max();
        wait_until(|| newest().unwrap_or(0) > done || run.try_wait().expect("a child").is_some());
        // Somewhere in the steps and saves that follow.
        std::thread::sleep(Duration::from_micros(3_700 * round * round));
        run.kill().expect("it can be killed");
        run.wait().expect("it ends");
        done = newest().expect("a checkpoint is there");
        arguments = vec!["train", "--resume", "runs/t-1"];
        place.run(&["eval", "runs/t-1", "--data", "t.csv", "--checkpoint", "latest"]).well();
    }
    assert!(done < epochs * 8, "it was killed in time");
    place.run(&arguments).well();
    assert_eq!(steps_of(&place, "runs/t-1/metrics.jsonl"), (0..epochs * 8).collect::<Vec<_>>());
    let ends: Vec<_> = place.lines("runs/t-1/epochs.jsonl").iter().map(|e| e["epoch"].as_u64()).collect();
    assert_eq!(ends, (0..epochs).map(Some).collect::<Vec<_>>());
    let weights = |place: &Place| {
        std::fs::read(place.path("runs/t-1/checkpoints/step-00000192/weights.safetensors"))
            .expect("the last checkpoint")
    };
    assert!(weights(&place) == weights(&undisturbed), "the weights differ");
    let losses = |place: &Place| -> Vec<Value> {
        place.lines("runs/t-1/metrics.jsonl").iter().map(|line| line["loss"].clone()).collect()
    };
    assert_eq!(losses(&place), losses(&undisturbed));
}

#[test]
fn a_run_folder_that_is_removed_ends_the_training() {
    let (place, run) = begun();
    std::fs::rename(place.path("runs/t-1"), place.path("elsewhere")).expect("movable");
    Ran::of(run.wait_with_output().expect("it ends")).failed(&["runs/t-1"]);
    place.has_no_run();
    // Nothing that was saved is lost.
    place.run(&["eval", "elsewhere", "--data", "t.csv", "--checkpoint", "latest"]).well();
}

/// Another folder has come in its place: nothing is written there.
#[test]
fn a_run_folder_that_is_replaced_ends_the_training() {
    let (place, run) = begun();
    std::fs::create_dir(place.path("other")).expect("writable");
    std::fs::rename(place.path("runs/t-1"), place.path("elsewhere")).expect("movable");
    std::fs::rename(place.path("other"), place.path("runs/t-1")).expect("movable");
    Ran::of(run.wait_with_output().expect("it ends")).failed(&["runs/t-1", "moved, removed or replaced"]);
    assert_eq!(place.names("runs/t-1"), [""; 0]);
    place.run(&["eval", "elsewhere", "--data", "t.csv", "--checkpoint", "latest"]).well();
}

#[test]
fn a_record_that_is_removed_is_told_and_written_on() {
    let (place, run) = begun();
    std::fs::remove_file(place.path("runs/t-1/metrics.jsonl")).expect("removable");
    wait_until(|| place.path("runs/t-1/metrics.jsonl").exists());
    signal(&run, "-INT");
    let ran = Ran::of(run.wait_with_output().expect("it ends"));
    let told = "runs/t-1/metrics.jsonl: it was removed or replaced during the training";
    assert!(ran.code == Some(1) && ran.error.matches(told).count() == 1, "{ran:#?}");
    let steps = steps_of(&place, "runs/t-1/metrics.jsonl");
    let last = steps.last().copied().expect("it goes on");
    assert_eq!(steps, (last + 1 - steps.len() as u64..=last).collect::<Vec<_>>());
}

/// Once the program has said that it goes back, that is so.
#[test]
fn a_run_that_is_killed_as_it_goes_back_from_a_spike_goes_on_from_there() {
    let place = long(1);
    // In order, an epoch of 80 batches: the samples of batch 70 are far off.
    let value = |i: usize| if i / 5 == 70 { 1e5 } else { (i % 7) as f64 };
    let table: String = (0..400).map(|i| format!("{},{},{}\n", value(i), i % 11, ["a", "b"][i % 2])).collect();
    place.write("t.csv", format!("x,y,kind\n{table}"));
    let settings = ["train.shuffle=false", "train.on_loss_spike=\"roll-back\"", "train.snapshot_every=20"];
    let settings = settings.map(|setting| ["--set", setting]).concat();
    let mut run = start(&place, &[&["train", "t.toml"], settings.as_slice()].concat());
    let mut out = BufReader::new(run.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    while !line.contains("going back to step 60") {
        line.clear();
        assert!(out.read_line(&mut line).expect("UTF-8") > 0, "the program ended without going back");
    }
    run.kill().expect("it can be killed");
    run.wait().expect("it ends");
    let out = place.run(&["train", "--resume", "runs/t-1"]).well().out;
    assert!(!out.contains("going back"), "{out}");
    let lines = place.lines("runs/t-1/metrics.jsonl");
    assert_eq!(steps_of(&place, "runs/t-1/metrics.jsonl"), (0..80).collect::<Vec<_>>());
    let left_out: Vec<_> = (0..80).filter(|step| lines[*step]["unapplied"].is_string()).collect();
    assert_eq!(left_out, (60..=70).collect::<Vec<_>>());
}
