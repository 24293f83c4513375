//! What is unusual and works.

use super::*;

/// The columns of a CSV text, its header included.
fn table(text: &str) -> Vec<Vec<String>> {
    let reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let rows = reader.into_records().map(|row| row.expect("well-formed"));
    rows.map(|row| row.iter().map(str::to_owned).collect()).collect()
}

#[test]
fn a_table_from_a_spreadsheet_trains_and_its_classes_come_back_quoted() {
    let place =
        Place::with_table("\u{feff}\"x\",\"y\",\"kind\"\r\n\"1\",2,\"a, b\"\r\n\r\n\"-1.5\",-2,\"c \"\"q\"\"\"\r\n");
    place.train(&["train.epochs=50", "optimizer.lr=0.1"]).well();
    let predictions = table(&place.run(&["predict", "runs/t-1", "--input", "t.csv"]).well().out);
    assert_eq!(predictions[0], ["class", "a, b", "c \"q\""]);
    assert_eq!([&predictions[1][0], &predictions[2][0]], ["a, b", "c \"q\""]);

    let ran = place.run(&["predict", "runs/t-1", "--input", "t.csv", "--format", "jsonl"]).well();
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (line, row) in lines.iter().zip(&predictions[1..]) {
        assert_eq!(line["class"], row[0]);
        let probability = line["probabilities"]["a, b"].as_f64().expect("a number");
        assert!((probability - row[1].parse::<f64>().expect("a number")).abs() < 1e-6, "{line} {row:?}");
    }
    // Without the label's column too.
    place.write("p.csv", "x,y\n1,2\n");
    assert_eq!(table(&place.run(&["predict", "runs/t-1", "--input", "p.csv"]).well().out)[1], predictions[1]);

    place.write("p.csv", "x,y\n1,two\n");
    place.run(&["predict", "runs/t-1", "--input", "p.csv"]).failed(&["p.csv:2: column 2: 'two' is not a number"]);
    // Columns are found by their names, wherever they stand.
    place.write("p.csv", "kind, y ,more,x\n,2,z,1\n");
    assert_eq!(table(&place.run(&["predict", "runs/t-1", "--input", "p.csv"]).well().out)[1], predictions[1]);
    place.write("p.csv", "kind,y,x\n\"a, b\",2,1\n");
    let said = place.run(&["eval", "runs/t-1", "--data", "p.csv"]).well().out;
    assert!(said.contains("accuracy: 100.00%"), "{said}");
    place.write("p.csv", "x\n1\n");
    place.run(&["predict", "runs/t-1", "--input", "p.csv"]).failed(&["p.csv: there is no column 'y'"]);
    place.write("p.csv", "x,y,kind\n1,2,d\n");
    place.run(&["eval", "runs/t-1", "--data", "p.csv"]).failed(&["p.csv:2: column 3: label 'd' is not one of"]);
    place.run(&["eval", "runs/t-1"]).failed(&["no held-out samples", "--data"]);
}

/// A border of zeros is what the same zeros in the file are: for training, evaluation and prediction.
#[test]
fn padded_images_are_those_with_zeros_in_the_file() {
    let place = Place::with_table("a,b,c,d,kind\n1,2,3,4,x\n5,-6,7,8,y\n-9,8,7,6,x\n2,1,0,9,y\n");
    let rows = ["1,2,0,3,4,0,x", "5,-6,0,7,8,0,y", "-9,8,0,7,6,0,x", "2,1,0,0,9,0,y"];
    place.write("wide.csv", format!("a,b,z,c,d,w,kind\n{}\n", rows.join("\n")));
    let common = ["model.layers=[\"flatten\",{kind=\"linear\",out=2}]", "data.scale=\"standardize-channels\""];
    place.train(&[&common[..], &["data.shape=[1,2,2]", "data.padding=[0,0,0,1]"]].concat()).well();
    place.train(&[&common[..], &["data.shape=[1,2,3]", "data.path=wide.csv"]].concat()).well();
    let predict = |run: &str, input: &str| place.run(&["predict", run, "--input", input]).well().out;
    assert_eq!(predict("runs/t-1", "t.csv"), predict("runs/t-2", "wide.csv"));
    let eval = |run: &str, input: &str| {
        let out = place.run(&["eval", run, "--data", input]).well().out;
        out.lines().skip(1).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(eval("runs/t-1", "t.csv"), eval("runs/t-2", "wide.csv"));
    place.run(&["predict", "runs/t-2", "--input", "t.csv"]).failed(&["t.csv: there is no column 'z'"]);
    place.run(&["train", "--resume", "runs/t-1", "--set", "data.padding=[0,0,1,0]"]).failed(&["leave data.padding"]);
}

#[test]
fn one_sample_one_class_and_batches_beyond_the_data() {
    let place = Place::with_table("x,y,kind\n1,2,a\n");
    let one = "model.layers=[{kind=\"linear\",out=1}]";
    place.train(&[one, "train.batch=4000000000", "train.micro_batch=100000", "train.keep_last=1"]).well();
    let steps = place.lines("runs/t-1/metrics.jsonl");
    assert_eq!((steps.len(), &steps[0]["samples"], &steps[0]["loss"]), (2, &1.into(), &0.0.into()));
}

#[test]
fn the_label_may_be_any_column() {
    let place = Place::with_table("kind,x,y\na,1,2\nb,3,4\na,5,6\n");
    let mut losses = Vec::new();
    for (run, label) in [(1, "\"kind\""), (2, "0"), (3, "-3")] {
        place.train(&[&format!("data.label={label}")]).well();
        losses.push(place.lines(&format!("runs/t-{run}/epochs.jsonl"))[1]["train"]["loss"].clone());
    }
    assert!(losses[0].is_number() && losses.iter().all(|loss| *loss == losses[0]), "{losses:?}");
}

#[test]
fn numbers_are_learned_and_predicted() {
    let place = Place::with_table("x;y\n0;1\n1;3\n2;5\n3;7\n4;9\n");
    let format = ["data.regression=true", "data.delimiter=\";\"", "data.validation=0.2"];
    let rest = ["model.layers=[{kind=\"linear\",out=1}]", "train.epochs=200", "optimizer.lr=0.1", "train.batch=4"];
    place.train(&[&format[..], &rest].concat()).well();
    let ran = place.run(&["predict", "runs/t-1", "--input", "t.csv"]).well();
    let rows = table(&ran.out);
    assert_eq!(rows[0], ["value_0"]);
    for (x, row) in rows[1..].iter().enumerate() {
        let value: f64 = row[0].parse().expect("a number");
        assert!((value - (2 * x + 1) as f64).abs() < 0.5, "{rows:?}");
    }
    let ran = place.run(&["eval", "runs/t-1", "--data", "t.csv"]).well();
    assert!(ran.out.contains("samples: 5\nloss: 0.") && !ran.out.contains("accuracy"), "{}", ran.out);
}

#[test]
fn paths_are_the_run_files_and_may_hold_spaces_and_any_letters() {
    let place = Place::new();
    let plain = Place::with_table(TABLE);
    place.write("a b/ünï/my run.toml", plain.read("t.toml").replace("t.csv", "../dåta.csv"));
    place.write("a b/dåta.csv", TABLE);
    let ran = place.run(&["train", "a b/ünï/my run.toml", "--set", "output.dir=o ut/ö"]).well();
    assert!(ran.out.ends_with("run folder: o ut/ö/my run-1\n"), "{}", ran.out);
    // The run folder knows where the data is, from anywhere.
    let mut program = place.program(&["train", "--set", "train.epochs=3", "--resume", "my run-1"]);
    Ran::of(program.current_dir(place.path("o ut/ö")).output().expect("the binary runs")).well();
    assert_eq!(place.lines("o ut/ö/my run-1/epochs.jsonl").len(), 3);
}

#[test]
fn later_settings_win_over_earlier_ones_and_flags_over_both() {
    let place = Place::with_table(TABLE);
    let flags = ["train", "t.toml", "--replicas", "2"];
    let settings = ["--set", "train.epochs=9", "--set", "devices.replicas=5", "--set", "train.epochs=1"];
    place.run(&[&flags[..], &settings].concat()).well();
    let run = place.read("runs/t-1/run.toml");
    assert!(run.contains("epochs = 1\n") && run.contains("replicas = 2\n") && run.contains("batch = 2\n"), "{run}");
}

#[test]
fn accumulation_clipping_and_dropped_batches_go_together() {
    let place = Place::with_table("x,y,kind\n1,2,a\n3,4,b\n5,6,a\n7,8,b\n9,1,a\n2,3,b\n4,4,b\n");
    let common = ["train.clip_norm=0.001", "train.micro_batch=1", "optimizer.kind=sgd"];
    place.train(&[&common[..], &["train.accumulate=2"]].concat()).well();
    let steps = place.lines("runs/t-1/metrics.jsonl");
    assert_eq!(steps.iter().map(|s| s["samples"].as_u64()).collect::<Vec<_>>(), [4, 3, 4, 3].map(Some));
    place.train(&[&common[..], &["train.batch=3", "train.drop_last=true"]].concat()).well();
    let steps = place.lines("runs/t-2/metrics.jsonl");
    assert_eq!(steps.iter().map(|s| s["samples"].as_u64()).collect::<Vec<_>>(), [3, 3, 3, 3].map(Some));
}
