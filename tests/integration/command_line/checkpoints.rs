//! Evaluating, predicting and going on from checkpoints, whole and damaged.

use everygpu::checkpoint::Store;
use everygpu::run::{CheckpointPolicy, RunFolder};
use everygpu::train::Position;

use super::*;

/// Trains the digits with a linear model: it takes no time, and has held-out samples.
fn digits(place: &Place, settings: &[&str]) -> Ran {
    let text = "[data]\nscale = 0.0625\n[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }]\n[train]\n";
    place.write("t.toml", format!("{text}batch = 200\nepochs = 3\n[optimizer]\nlr = 0.01\n"));
    place.train(settings)
}

#[test]
fn evaluation_gives_the_numbers_that_training_printed() {
    let place = Place::new();
    // It gets worse after the first epoch.
    digits(&place, &["train.epochs=2", "optimizer.kind=\"sgd\"", "schedule.warmup=15", "optimizer.lr=60"]).well();
    let epochs = place.lines("runs/t-1/epochs.jsonl");
    let accuracy = |epoch: &Value| epoch["validation"]["accuracy"].as_f64().expect("a number");
    let best = epochs.iter().fold(&epochs[0], |best, e| if accuracy(e) > accuracy(best) { e } else { best });
    for (arguments, epoch) in [(&[][..], best), (&["--checkpoint", "latest"], &epochs[1])] {
        let ran = place.run(&[&["eval", "runs/t-1"], arguments].concat()).well();
        let loss = epoch["validation"]["loss"].as_f64().expect("a number");
        for line in [
            format!("step-{:08}\n", epoch["steps"].as_u64().expect("a count")),
            format!("loss: {loss:.6}\n"),
            format!("accuracy: {:.2}%\n", 100.0 * accuracy(epoch)),
        ] {
            assert!(ran.out.contains(&line), "{line}{}", ran.out);
        }
    }
}

/// With a moving average of the weights, by which both go, unless the weights themselves are wanted.
#[test]
fn evaluation_goes_by_the_average_as_training_did() {
    let place = Place::new();
    let average = ["optimizer.ema_decay=0.9", "schedule.kind=plateau", "optimizer.kind=lion", "optimizer.lr=0.01"];
    digits(&place, &average).well();
    let epochs = place.lines("runs/t-1/epochs.jsonl");
    let loss = epochs[2]["validation"]["loss"].as_f64().expect("a number");
    let eval = |arguments: &[&str]| {
        let ran = place.run(&[&["eval", "runs/t-1", "--checkpoint", "latest"], arguments].concat()).well();
        ran.out.lines().find(|line| line.starts_with("loss: ")).expect("the loss").to_owned()
    };
    assert_eq!(eval(&[]), format!("loss: {loss:.6}"));
    assert_ne!(eval(&["--raw"]), eval(&[]));
    place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=4"]).well();
    assert_eq!(place.lines("runs/t-1/epochs.jsonl").len(), 4);
}

/// Groups are checked against the model before anything is written.
#[test]
fn a_group_that_matches_nothing_ends_the_command() {
    let place = Place::with_table(TABLE);
    let group = |pattern: &str| format!("optimizer.groups=[{{ match = \"{pattern}\", frozen = true }}]");
    place
        .train(&[&group("linear_1.bais")])
        .failed(&[": optimizer.groups[1].match: \"linear_1.bais\" matches no parameter", "linear_1.bias"]);
    place.has_no_run();
    place.train(&[&group("*.bias")]).well();
    let resolved = place.read("runs/t-1/run.toml");
    assert!(resolved.contains("{ match = \"*.bias\", lr_scale = 1.0, frozen = true }"), "{resolved}");
}

#[test]
fn predictions_are_right_as_often_as_evaluation_says() {
    let place = Place::new();
    digits(&place, &[]).well();
    let data = repository("data/digits.csv.gz");
    let ran = place.run(&["eval", "runs/t-1", "--data", &data]).well();
    let accuracy: f64 =
        ran.out.split("accuracy: ").nth(1).expect("it is there").trim_end_matches("%\n").parse().unwrap();

    let mut text = String::new();
    let file = std::fs::File::open(&data).expect("readable");
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).expect("readable");
    let labels = text.lines().map(|line| line.rsplit(',').next().expect("a label"));
    let predicted = place.run(&["predict", "runs/t-1", "--input", &data]).well().out;
    let classes = predicted.lines().skip(1).map(|line| line.split(',').next().expect("a class"));
    let right = labels.zip(classes).filter(|(label, class)| label == class).count();
    let counted = 100.0 * right as f64 / text.lines().count() as f64;
    assert!((counted - accuracy).abs() < 0.006, "{counted} {accuracy}");
}

#[test]
fn without_held_out_samples_the_last_checkpoint_is_taken() {
    let place = Place::with_table(TABLE);
    place.train(&["train.epochs=3", "optimizer.lr=1e-9"]).well();
    let ran = place.run(&["eval", "runs/t-1", "--data", "t.csv"]).well();
    assert!(ran.out.contains(&native("runs/t-1/checkpoints/step-00000006\n")), "{}", ran.out);
}

#[test]
fn a_damaged_checkpoint_is_refused_by_all_who_read_it() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    let newest = place.path("runs/t-1/checkpoints/step-00000004");
    let record = place.read("runs/t-1/metrics.jsonl");
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() / 2);
    let flip: fn(&mut Vec<u8>) = |bytes| *bytes.iter_mut().rev().nth(20).expect("long enough") ^= 4;
    let foreign: fn(&mut Vec<u8>) = |bytes| *bytes = b"{\"some\": \"thing\"}".to_vec();
    for (file, damages) in [
        ("weights.safetensors", [cut, flip, foreign]),
        ("optimizer.safetensors", [cut, flip, foreign]),
        ("state.json", [cut, flip, foreign]),
    ] {
        let whole = std::fs::read(newest.join(file)).expect("readable");
        for (index, damage) in damages.iter().enumerate() {
            let mut bytes = whole.clone();
            damage(&mut bytes);
            std::fs::write(newest.join(file), bytes).expect("writable");
            let part = format!("step-00000004/{file}: ");
            place.run(&["train", "--resume", "runs/t-1"]).failed(&[&part, "to go on from step 2 instead, remove"]);
            // The three read through the same code.
            if index == 0 {
                place.run(&["eval", "runs/t-1", "--data", "t.csv", "--checkpoint", "latest"]).failed(&[&part]);
                let latest = ["--checkpoint", "latest", "--input", "t.csv"];
                place.run(&[&["predict", "runs/t-1"][..], &latest].concat()).failed(&[&part]);
            }
        }
        std::fs::write(newest.join(file), whole).expect("writable");
    }
    assert_eq!(place.read("runs/t-1/metrics.jsonl"), record);

    std::fs::remove_file(newest.join("state.json")).expect("removable");
    place.run(&["train", "--resume", "runs/t-1"]).failed(&["state.json: the file is missing"]);
    std::fs::remove_dir_all(&newest).expect("removable");
    place.run(&["train", "--resume", "runs/t-1"]).well();
    assert_eq!(place.lines("runs/t-1/metrics.jsonl").len(), 4);

    place.write("runs/t-1/data.json", "{}");
    place.run(&["predict", "runs/t-1", "--input", "t.csv"]).failed(&["data.json: "]);
    place.run(&["train", "--resume", "runs/t-1"]).failed(&["data.json: "]);
    place.run(&["eval", "no-such-run"]).failed(&["no-such-run"]);
    std::fs::remove_dir_all(place.path("runs/t-1/checkpoints")).expect("removable");
    place.run(&["train", "--resume", "runs/t-1"]).failed(&["runs/t-1: there is no checkpoint to go on from"]);
}

#[test]
fn a_finished_run_goes_on_when_it_gets_more_epochs() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    let ran = place.run(&["train", "--resume", "runs/t-1"]).well();
    assert!(ran.out.contains(&native("all 2 epochs of runs/t-1 are done already")), "{}", ran.out);
    let before = place.read("runs/t-1/run.toml");
    let ran = place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=1"]).well();
    let told =
        "nothing is left to do: all 2 epochs of runs/t-1 are done already, and train.epochs is 1; expected more than 2";
    assert!(ran.out.contains(&native(told)), "{}", ran.out);
    assert_eq!((place.lines("runs/t-1/epochs.jsonl").len(), place.read("runs/t-1/run.toml")), (2, before));
    place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=4"]).well();
    assert_eq!(place.lines("runs/t-1/epochs.jsonl").len(), 4);
    // Eight steps of two and one samples; from here on one a pass.
    let dropping = ["train", "--resume", "runs/t-1", "--set", "train.epochs=6", "--set", "train.drop_last=true"];
    place.run(&dropping).well();
    let epochs: Vec<_> = place.lines("runs/t-1/metrics.jsonl").iter().map(|l| l["epoch"].as_u64()).collect();
    assert_eq!(epochs, [0, 0, 1, 1, 2, 2, 3, 3, 4, 5].map(Some));
    assert_eq!(place.names("runs"), ["t-1"]);
}

#[test]
fn a_run_does_not_go_on_as_another() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    let before = place.read("runs/t-1/run.toml");
    for (setting, parts) in [
        ("train.batch=3", ["train.batch × train.accumulate", "made with 2, this run has 3"]),
        ("train.seed=3", ["train.seed", "made with 0, this run has 3"]),
        ("train.shuffle=false", ["train.shuffle", "made with true, this run has false"]),
        ("model.layers=[{kind=\"linear\",out=2,name=\"other\"}]", ["not those of this model", "other.weight"]),
        ("train.split=[1, 1]", ["--set train.split=[1, 1]: ", "train.split: expected 1 weights, one a device, got 2"]),
        (
            "optimizer.kind=sgd",
            [
                "--set optimizer.kind=sgd: optimizer.kind: the checkpoint was made with adamw, this run has sgd; put it back",
                "or start a new run from the checkpoint's weights (export, then train --init)",
            ],
        ),
        (
            "optimizer.ema_decay=0.9",
            [
                "--set optimizer.ema_decay=0.9: resuming from runs/t-1/checkpoints/step-00000004: optimizer.ema_decay: ",
                "made with no moving average of the weights, this run has a moving average of the weights; put it back",
            ],
        ),
    ] {
        let more = ["train", "--resume", "runs/t-1", "--set", "train.epochs=4", "--set", setting];
        place.run(&more).failed(&parts);
    }
    // The file of the run itself, with another optimizer's settings still in it.
    let edited = before.replace("kind = \"adamw\"", "kind = \"lion\"");
    let line = 1 + edited.lines().position(|line| line == "kind = \"lion\"").expect("it was replaced");
    place.write("runs/t-1/run.toml", edited);
    let told =
        format!("runs/t-1/run.toml:{line}: optimizer.kind: the checkpoint was made with adamw, this run has lion");
    place.run(&["train", "--resume", "runs/t-1"]).failed(&[&told]);
    place.write("runs/t-1/run.toml", &before);
    place.write("t.csv", TABLE.replace('a', "z"));
    place.run(&["train", "--resume", "runs/t-1"]).failed(&["trained on classes [\"a\", \"b\"]", "[\"b\", \"z\"] now"]);
    assert_eq!(place.read("runs/t-1/run.toml"), before);
}

/// A table of 10 rows, of which 2 are held out, and more of them.
fn rows(count: usize) -> String {
    let rows = (0..count).map(|i| format!("{},{},{}\n", i % 7, (i * 5) % 11, ["a", "b"][i % 2]));
    "x,y,kind\n".chars().chain(rows.collect::<String>().chars()).collect()
}

#[test]
fn a_run_goes_on_with_the_data_that_it_began_with_only() {
    let place = Place::with_table(&rows(10));
    place.train(&["data.validation=0.2", "data.scale=standardize"]).well();
    let go_on = ["train", "--resume", "runs/t-1", "--set", "train.epochs=3"];
    let before = place.read("runs/t-1/metrics.jsonl");
    let init = "start a new run from the checkpoint's weights: train RUN.toml --init \
                runs/t-1/checkpoints/step-00000008/weights.safetensors";
    for (table, numbers) in [
        (rows(12), "10 samples to train on and 2 held out now, 8 samples to train on and 2 held out then"),
        (rows(9), "7 samples to train on and 2 held out now"),
        (rows(10).replace("3,4,b", "4,4,b"), "8 samples to train on and 2 held out, as then, but others"),
        (rows(10).replace("0,0,a\n1,5,b\n", "1,5,b\n0,0,a\n"), "as then, but others"),
        (rows(10).replace("0,0,a", "0,0,b"), "as then, but others"),
    ] {
        assert_ne!(table, rows(10));
        place.write("t.csv", table);
        place.run(&go_on).failed(&["runs/t-1: the data is not what the run was trained on", numbers, init]);
        assert_eq!(place.read("runs/t-1/metrics.jsonl"), before);
    }
    place.write("t.csv", rows(10));
    place.run(&[&go_on[..], &["--set", "data.scale=max"]].concat()).failed(&["leave data.scale as it was"]);
    // What it says works.
    place.write("t.csv", rows(12));
    let weights = "runs/t-1/checkpoints/step-00000008/weights.safetensors";
    place.run(&["train", "t.toml", "--init", weights]).well();

    // The same values in another form are the same data. A run from before it was noted goes on, and notes it then.
    place.write("t.csv", rows(10).replace("3,4,b", "3.0, 4e0 ,b"));
    let card: Value = serde_json::from_str(&place.read("runs/t-1/data.json")).expect("JSON");
    let known = ["input", "target", "classes", "normalizer"].map(|key| (key.to_owned(), card[key].clone()));
    let older = Value::Object(known.into_iter().collect());
    place.write("runs/t-1/data.json", older.to_string());
    place.run(&go_on).well();
    place.write("t.csv", rows(12));
    place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=4"]).failed(&["10 samples to train on"]);
}

#[test]
fn a_run_goes_on_with_the_text_that_it_began_with_only() {
    let text = "the cat sat on the mat and the dog sat on the log. ".repeat(4);
    for tokenizer in ["bytes", "characters"] {
        let place = Place::new();
        place.write("a.txt", &text);
        let data = format!("[data]\nformat = \"text\"\npath = \"a.txt\"\nlength = 8\ntokenizer = \"{tokenizer}\"\n");
        let vocabulary = if tokenizer == "bytes" { 256 } else { 14 };
        let layers = format!("{{ kind = \"embedding\", vocabulary = {vocabulary}, width = {vocabulary} }}");
        place.write("t.toml", format!("{data}[model]\nlayers = [{layers}]\n[train]\nepochs = 1\n"));
        place.train(&[]).well();
        let go_on = ["train", "--resume", "runs/t-1", "--set", "train.epochs=2"];
        for changed in [format!("{text}the end"), text.replacen("cat", "dog", 1)] {
            place.write("a.txt", changed);
            place.run(&go_on).failed(&["runs/t-1: the data is not what the run was trained on", "--init"]);
        }
        place.write("a.txt", &text);
        place.run(&[&go_on[..], &["--set", "data.stride=4"]].concat()).failed(&["the data is not what"]);
        place.run(&go_on).well();
    }
}

#[test]
fn a_checkpoint_of_another_name_and_a_damaged_record_are_told() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    let checkpoint = |step: u32| place.path(&format!("runs/t-1/checkpoints/step-{step:08}"));
    std::fs::rename(checkpoint(4), checkpoint(9)).expect("movable");
    let told = ["step-00000009", "its folder's name says step 9, state.json says step 4", "would be step-00000004"];
    place.run(&["train", "--resume", "runs/t-1"]).failed(&told);
    place.run(&["eval", "runs/t-1", "--data", "t.csv"]).failed(&told);
    std::fs::rename(checkpoint(9), checkpoint(4)).expect("movable");

    let store = Store::open(place.path("runs/t-1/checkpoints")).expect("a folder");
    let whole = Store::load(checkpoint(4)).expect("readable");
    let mut forged = whole.clone();
    forged.state["position"]["epoch"] = u64::MAX.into();
    store.save(&forged, None).expect("writable");
    let remove = "to go on from step 2 instead, remove runs/t-1/checkpoints/step-00000004: checkpoint of step 4: ";
    let told = [remove, "its position is impossible: epoch is 18446744073709551615"];
    place.run(&["train", "--resume", "runs/t-1"]).failed(&told);
    store.save(&whole, None).expect("writable");

    let record = place.read("runs/t-1/metrics.jsonl");
    let damaged = record.replacen("{\"step\":1,", "{\"step:1,", 1);
    assert_ne!(damaged, record);
    place.write("runs/t-1/metrics.jsonl", &damaged);
    let ran = place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=3"]);
    for part in [
        "runs/t-1/metrics.jsonl:2: 1 damaged line(s) are left out; the file as it was is kept in",
        "runs/t-1/metrics.jsonl: 1 of 4 lines are missing, the first is that of step 1",
    ] {
        assert!(ran.code == Some(0) && ran.error.contains(&native(part)), "{part}: {ran:#?}");
    }
    assert_eq!(place.read("runs/t-1/metrics.jsonl.damaged"), damaged);
    assert_eq!(place.lines("runs/t-1/metrics.jsonl").len(), 5);
}

#[test]
fn the_number_of_devices_may_change_between_runs() {
    let place = Place::new();
    digits(&place, &["train.split=[1, 2, 0]", "devices.replicas=3", "train.epochs=1"]).well();
    let eval = |count| place.run(&["eval", "runs/t-1", "--replicas", count]).well().out;
    assert_eq!(eval("1").lines().nth(3), eval("2").lines().nth(3));
    for (replicas, epochs) in [("1", "train.epochs=2"), ("2", "train.epochs=3")] {
        let more =
            ["train", "--resume", "runs/t-1", "--set", epochs, "--replicas", replicas, "--set", "train.split=even"];
        let ran = place.run(&more);
        assert!(ran.code == Some(0) && ran.error.contains("rounding will differ"), "{ran:#?}");
    }
    let lines = place.lines("runs/t-1/metrics.jsonl");
    let devices: Vec<_> = lines.iter().map(|l| l["shards"].as_array().expect("a list").len()).collect();
    assert_eq!(devices, [[3; 8], [1; 8], [2; 8]].concat());
}

#[test]
fn a_run_folder_belongs_to_one_process_at_a_time() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    let position = Position { step: 4, epoch: 2, ..Position::default() };
    let policy = CheckpointPolicy { every: 0, keep_last: 1, keep_best: 0 };
    let held = RunFolder::reopen(&place.path("runs/t-1"), &position, policy).expect("the run has ended");
    let go_on = ["train", "--resume", "runs/t-1", "--set", "train.epochs=3"];
    let metrics = place.read("runs/t-1/metrics.jsonl");
    let holder = std::process::id();
    place.run(&go_on).failed(&["runs/t-1", &format!("another process ({holder}) is training in this run folder")]);
    // The folder can be looked at, copied and evaluated meanwhile.
    assert_eq!(place.read("runs/t-1/lock"), format!("{holder}\n"));
    place.run(&["eval", "runs/t-1", "--data", "t.csv"]).well();
    assert_eq!(place.read("runs/t-1/metrics.jsonl"), metrics);
    drop(held);
    place.run(&go_on).well();
}

/// A schedule over the whole run is another one when the run gets longer.
#[test]
fn a_rate_that_jumps_where_a_run_goes_on_longer_is_told() {
    let place = Place::with_table(TABLE);
    let resume =
        |run: &str, epochs: u32| place.run(&["train", "--resume", run, "--set", &format!("train.epochs={epochs}")]);
    place.train(&["schedule.kind=one-cycle", "optimizer.lr=0.1"]).well();
    let ran = resume("runs/t-1", 9);
    assert!(ran.code == Some(0) && ran.error.contains("the learning rate goes from "), "{ran:#?}");
    assert!(ran.error.contains("train.epochs = 9 now and had 2") && ran.error.contains("\"constant\""), "{ran:#?}");
    // What does not depend on the run's length goes on as it was, and so does a run that gets no longer.
    place.train(&["schedule.kind=step", "schedule.every=2"]).well();
    resume("runs/t-2", 3).well();
    resume("runs/t-1", 9).well();
}
