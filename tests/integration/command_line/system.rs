//! What the system does to a training: stops it for a while, with its devices (a debugger, a job's scheduler, a machine
//! that sleeps), or refuses it threads.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_process_that_was_stopped_keeps_its_devices() {
    let rows: String = (0..64).map(|i| format!("{},{},{}\n", i % 7, (i * 5) % 11, ["a", "b"][i % 2])).collect();
    let place = Place::with_table(&format!("x,y,kind\n{rows}"));
    let layers = "layers = [{ kind = \"linear\", out = 512 }, \"relu\", { kind = \"linear\", out = 512 }, \"relu\", \
                  { kind = \"linear\", out = 2 }]";
    let run = place.read("t.toml").replace("layers = [{ kind = \"linear\", out = 2 }]", layers);
    let run =
        run.replace("epochs = 2\nbatch = 2", "epochs = 1000000\nbatch = 64\nsplit = \"even\"\ncheckpoint_every = 20");
    place.write("t.toml", format!("{run}[devices]\nreplicas = 2\nhang_timeout = 3\nrejoin_after = 0\n"));
    let mut program = place.program(&["train", "t.toml"]);
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let signal = |name: &str| {
        let sent =
            Command::new("kill").args([name, &child.id().to_string()]).status().expect("there is a kill command");
        assert!(sent.success());
    };
    let newest = || place.names("runs/t-1/checkpoints").into_iter().filter(|name| name.starts_with("step-")).max();
    let next = |last: Option<String>| {
        let begin = Instant::now();
        while newest() <= last {
            assert!(begin.elapsed() < Duration::from_secs(120), "it takes too long");
            std::thread::sleep(Duration::from_millis(10));
        }
        newest()
    };
    let before = next(None);
    signal("-STOP");
    std::thread::sleep(Duration::from_millis(4500));
    signal("-CONT");
    next(before);
    signal("-INT");
    let ran = Ran::of(child.wait_with_output().expect("it ends"));
    let events = place.read("runs/t-1/events.jsonl");
    assert!(!events.contains("lost") && ran.error.contains("interrupted at step"), "{events}{ran:#?}");
}

#[test]
fn where_no_thread_can_be_made_it_is_said_and_nothing_left() {
    let place = Place::with_table(TABLE);
    // No address space has room for such stacks.
    let run = |command: &[&str]| {
        Ran::of(place.program(command).env("RUST_MIN_STACK", (1_u64 << 46).to_string()).output().unwrap())
    };
    let trained = run(&["train", "t.toml"]);
    assert!(trained.code == Some(1) && trained.error.contains("no thread could be started"), "{trained:#?}");
    assert!(trained.error.contains("it cannot be tested") && !trained.error.contains("wrongly"), "{trained:#?}");
    let listed = run(&["adapters"]);
    assert!(listed.out.contains("no thread could be started"), "{listed:#?}");
    assert!(![&trained, &listed].iter().any(|ran| ran.error.contains("panicked")), "{trained:#?}{listed:#?}");
    place.has_no_run();
}
