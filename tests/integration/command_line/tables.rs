//! A run on a table, from its training to what is read for it later.

use super::*;

/// Times in seconds, which differ by less than float32 can tell, and two classes.
fn times() -> Place {
    let rows =
        (0..40).map(|k| format!("{},{},{}\n", 1_700_000_000 + k + k / 20 * 10, k % 7, ["early", "late"][k / 20]));
    let place = Place::with_table(&format!("time,x,kind\n{}", rows.collect::<String>()));
    let settings = ["data.scale=standardize", "train.epochs=60", "optimizer.lr=0.1", "train.batch=40"];
    place.train(&settings).well();
    place
}

#[test]
fn what_differs_by_little_is_learned_and_found_by_name() {
    let place = times();
    let accuracy = |file: &str| place.run(&["eval", "runs/t-1", "--data", file]).well().out;
    assert!(accuracy("t.csv").contains("accuracy: 100.00%"), "{}", accuracy("t.csv"));
    place.write("p.csv", "more,kind,x,time\n?,late,1,1700000049\n?,early,2,1700000000\n");
    assert!(accuracy("p.csv").contains("accuracy: 100.00%"), "{}", accuracy("p.csv"));
    let predicted = place.run(&["predict", "runs/t-1", "--input", "p.csv"]).well().out;
    let classes: Vec<_> = predicted.lines().skip(1).map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!(classes, ["late", "early"]);

    for command in [["predict", "runs/t-1", "--input", "p.csv"], ["eval", "runs/t-1", "--data", "p.csv"]] {
        let limited = [&command[..], &["--size-limit", "20B"]].concat();
        place.run(&limited).failed(&["p.csv: it holds more than 20 bytes", "--size-limit"]);
    }
    place.run(&["export", "runs/t-1", "m.onnx"]).failed(&["runs/t-1", "float32 cannot tell them apart"]);
    place.run(&["train", "--resume", "runs/t-1", "--set", "data.label=x"]).failed(&["leave data.label"]);
    place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=61"]).well();

    place.write("t.csv", place.read("t.csv").replace("late", "later"));
    place
        .run(&["eval", "runs/t-1"])
        .failed(&["trained on classes [\"early\", \"late\"]", "[\"early\", \"later\"] now"]);

    let card = place.read("runs/t-1/data.json");
    place.write("runs/t-1/data.json", card.replace("early", "earlz"));
    for command in [&["predict", "runs/t-1", "--input", "p.csv"][..], &["train", "--resume", "runs/t-1"]] {
        place.run(command).failed(&["runs/t-1/data.json", "does not match its checksum"]);
    }
}
