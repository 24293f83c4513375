//! What cannot work: one line that says what is wrong and where, exit code 1, and nothing left on the disk.

use super::*;

#[test]
fn a_run_file_is_refused_with_the_nearest_key_and_its_line() {
    let place = Place::with_table(TABLE);
    let good = place.read("t.toml");
    for (text, parts) in [
        (format!("{good}epoch = 3\n"), ["t.toml:10: unknown key 'train.epoch'", "did you mean 'train.epochs'?"]),
        (format!("{good}[trian]\n"), ["t.toml:10: unknown key 'trian'", "did you mean 'train'?"]),
        (good.replace("out", "outs"), ["t.toml:6: unknown key 'model.layers[1].outs'", "'model.layers[1].out'?"]),
        (good.replace("linear", "linaer"), ["t.toml:6: model.layers[1]", "did you mean \"linear\"?"]),
        (good.replace("batch = 2", "batch = 0"), ["t.toml:9", "at least 1, got 0"]),
        (good.replace("batch = 2", "batch = 2\nepochs = 4"), ["t.toml:10", "duplicate key"]),
        (good.replace("= 2\n", "\n"), ["t.toml:", "expected `=`"]),
        (String::new(), ["t.toml:1: model.layers", "at least one layer"]),
    ] {
        place.write("t.toml", text);
        place.train(&[]).failed(&parts);
    }
    place.write("t.toml", b"\xff\xfe");
    place.train(&[]).failed(&["t.toml", "UTF-8"]);
    place.run(&["train", "no.toml"]).failed(&["no.toml: "]);
    place.has_no_run();
}

#[test]
fn a_setting_out_of_range_is_refused_by_its_name() {
    let place = Place::with_table(TABLE);
    for (setting, parts) in [
        ("train.batch=0", &["train.batch: expected", "at least 1, got 0"][..]),
        ("train.epochs=0", &["train.epochs"]),
        ("train.micro_batch=0", &["train.micro_batch"]),
        ("train.batch=9223372036854775807", &["train.batch × train.accumulate: expected at most 4294967295"]),
        ("train.accumulate=9223372036854775807", &["train.batch × train.accumulate"]),
        ("train.split=[1, 2]", &["train.split: expected 1 weights, one a device, got 2"]),
        ("train.split=\"sped\"", &["\"speed\", \"even\""]),
        ("train.drop_last=true", &[]),
        ("optimizer.lr=0", &["optimizer.lr", "above 0"]),
        ("optimizer.lr=nan", &["optimizer.lr", "NaN"]),
        ("data.label=\"sort\"", &["no label column 'sort'; the columns are 'x', 'y', 'kind'"]),
        ("data.path=no.csv", &["no.csv: "]),
        ("data.path=.", &["expected a file, found a folder"]),
        ("data.validation=0.01", &["nothing is left for validation"]),
        ("output.dir=t.csv", &["output.dir", "t.csv is a file"]),
        ("devices.adapters=nope", &["unknown adapter 'nope'; available: 0 ("]),
        ("devices.adapters=99", &["unknown adapter '99'; available: 0 ("]),
        ("devices.memory_limit=\"1KiB\"", &["out of memory: ", "the limit is 1024"]),
        ("train.batch", &["expected KEY=VALUE"]),
    ] {
        let batch = if setting.contains("drop_last") { "train.batch=4" } else { "train.seed=0" };
        place.train(&[batch, setting]).failed(parts);
        place.has_no_run();
    }
}

/// What is found out only with the data, the model or the devices at hand has its place in the run file too.
#[test]
fn a_setting_that_turns_out_to_be_wrong_is_told_with_its_line() {
    let place = Place::with_table(TABLE);
    let good = place.read("t.toml");
    for (lines, told) in [
        ("split = [1, 2]", "t.toml:10: train.split: expected 1 weights, one a device, got 2"),
        ("[[optimizer.groups]]\nmatch = \"no\"", "t.toml:11: optimizer.groups[1].match: \"no\" matches no parameter"),
        ("accumulate = 4294967295", "t.toml:9: train.batch × train.accumulate: expected at most 4294967295 samples"),
        ("on_loss_spike = \"roll-back\"\nsnapshot_every = 0", "t.toml:11: train.snapshot_every: expected 1 or more"),
        (
            "[optimizer]\nlr = 1e-40",
            "t.toml:11: optimizer.lr: expected a number from 1.1754944e-38 to 3.4028235e38, got",
        ),
        ("[devices]\nhang_timeout = 1e39", "t.toml:11: devices.hang_timeout: expected seconds from 0.001 to 1e9"),
        ("[optimizer]\nlr = 1e39", "t.toml:11: optimizer.lr: expected a number from"),
    ] {
        place.write("t.toml", format!("{good}{lines}\n"));
        place.train(&[]).failed(&[told]);
    }
    place.write(
        "t.toml",
        good.replace("{ kind = \"linear\", out = 2 }", "\n  \"relu\",\n  { kind = \"linear\", out = 3 }\n"),
    );
    for command in ["train", "plan"] {
        place.run(&[command, "t.toml"]).failed(&["t.toml:8: layer 2 (linear): expected [2] as its output"]);
    }
    place.write("t.toml", good.replace("\"none\"", "0.01"));
    place.train(&[]).failed(&["t.toml:4: data.validation: ", "nothing is left for validation"]);
    place.has_no_run();
}

/// Where a command's result cannot go is known before the work.
#[test]
fn an_output_that_cannot_be_written_is_refused_at_once() {
    let place = Place::with_table(TABLE);
    let mut runs = vec![
        (vec!["tune", "t.toml", "--svg", "none/a.svg"], "none/a.svg: "),
        (vec!["tune", "t.toml", "--svg", "."], "expected a file, found a folder"),
        (vec!["train", "t.toml", "--trace", "none/a.json"], "none/a.json: "),
        (vec!["demo", "--trace", "t.csv/a.json"], "t.csv: expected a folder, found a file"),
    ];
    if cfg!(unix) {
        runs.push((vec!["tune", "t.toml", "--svg", "/dev/null"], "/dev/null: expected a file, found something else"));
    }
    for (arguments, told) in runs {
        let ran = place.run(&arguments);
        ran.failed(&[told]);
        assert_eq!(ran.out, "", "{arguments:?}");
    }
    let mut permissions = std::fs::metadata(place.path("t.toml")).expect("it is there").permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(place.path("t.toml"), permissions).expect("it is ours");
    let ran = place.run(&["tune", "t.toml", "--apply"]);
    ran.failed(&["t.toml: is read-only"]);
    assert_eq!(ran.out, "");
    assert_eq!(place.names(""), ["t.csv", "t.toml"]);
}

#[test]
fn a_model_that_cannot_work_names_its_layer() {
    let place = Place::with_table(TABLE);
    for (layers, parts) in [
        ("[{kind=\"linear\",out=3}]", &["layer 1 (linear)", "expected [2]", "got [3]"][..]),
        ("[\"flatten\",{kind=\"conv2d\",out=1,kernel=3}]", &["layer 2 (conv2d)", "got [2]"]),
        ("[{kind=\"reshape\",shape=[9223372036854775807,4]}]", &["layer 1 (reshape)", "got 2 in [2]"]),
        ("[{kind=\"linear\",out=9223372036854775807},{kind=\"linear\",out=2}]", &["layer 1 (linear)", "at most"]),
        ("[]", &["at least one layer"]),
    ] {
        let setting = format!("model.layers={layers}");
        place.train(&[&setting]).failed(parts);
        place.run(&["plan", "t.toml", "--set", &setting]).failed(&["layer"]);
    }
    let huge = "model.layers=[{kind=\"linear\",out=2000000000},{kind=\"linear\",out=2}]";
    place.train(&[huge]).failed(&["linear_2.weight needs 16000000000", "max_storage_buffer_binding_size is"]);
    place.has_no_run();
}

/// Also inside of layers made of layers, and with layers behind it that change no value.
#[test]
fn an_activation_that_the_loss_applies_itself_is_refused() {
    let place = Place::with_table(TABLE);
    let linear = "{kind=\"linear\",out=2}";
    let cross_entropy = "cross-entropy loss takes logits and applies softmax itself; leave this layer out";
    let bce = "bce loss takes logits and applies sigmoid itself; leave this layer out";
    let kl = "kl loss takes logits and applies softmax itself; leave this layer out";
    let block = |kind: &str, last: &str| {
        format!("[{{kind=\"{kind}\",times=1,layers=[{linear},\"{last}\"]}}]")
            .replace("times=1,", if kind == "repeat" { "times=1," } else { "" })
    };
    let nested = format!(
        "[{{kind=\"block\",layers=[{{kind=\"residual\",layers=[\"relu\"],shortcut=[{linear},\"softmax\"]}}]}},\"flatten\"]"
    );
    for (layers, loss, parts) in [
        (format!("[{linear},\"softmax\"]"), "cross-entropy", ["layer 2 (softmax): the ", cross_entropy]),
        (format!("[{linear},\"softmax\",\"flatten\"]"), "cross-entropy", ["layer 2 (softmax): the ", cross_entropy]),
        (block("block", "softmax"), "cross-entropy", ["layer 1 (block): layer 2 (softmax): the ", cross_entropy]),
        (block("repeat", "softmax"), "cross-entropy", ["layer 1 (repeat): layer 2 (softmax): the ", cross_entropy]),
        (block("residual", "softmax"), "kl", ["layer 1 (residual): layer 2 (softmax): the ", kl]),
        (nested, "cross-entropy", ["layer 1 (block): layer 1 (residual): layer 2 (softmax): the ", cross_entropy]),
        (format!("[{linear},\"sigmoid\"]"), "bce", ["layer 2 (sigmoid): the ", bce]),
        (block("block", "sigmoid"), "bce", ["layer 1 (block): layer 2 (sigmoid): the ", bce]),
    ] {
        let regression = if loss == "cross-entropy" { "false" } else { "true" };
        place.write("t.csv", if regression == "true" { "x,y,z\n1,2,1\n3,4,1\n" } else { TABLE });
        let settings = [
            format!("model.layers={layers}"),
            format!("model.loss=\"{loss}\""),
            format!("data.regression={regression}"),
        ];
        let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting.as_str()]).collect();
        for command in ["plan", "train"] {
            place.run(&[&[command, "t.toml"], &settings[..]].concat()).failed(&parts);
        }
    }
    // Where the loss does not apply it, or it is inside the network, it stays.
    let inside = format!("model.layers=[{linear},\"softmax\",\"sigmoid\",{linear}]");
    place.write("t.csv", TABLE);
    place.run(&["plan", "t.toml", "--set", &inside]).well();
    place.has_no_run();
}

/// A backslash begins an escape in a TOML string: what is wrong with a path of Windows, and how it is written.
#[test]
fn backslashes_in_paths_are_told_with_a_remedy() {
    let place = Place::with_table(TABLE);
    let good = place.read("t.toml");
    for path in [r"C:\data\t.csv", r"C:\Users\t.csv", r"C:\xyz\t.csv", r"C:\temp\new.csv", r"C:\dir\"] {
        for text in [good.replace("t.csv", path), good.replace("\"none\"", &format!("\"{path}\""))] {
            place.write("h.toml", text);
            place.run(&["train", "h.toml"]).failed(&["h.toml:", "write 'C:\\data\\a.csv' between single quotes"]);
        }
    }
    place.has_no_run();
}

#[test]
fn targets_of_which_none_counts_are_told_with_the_data_they_are_of() {
    let place = Place::with_table(TABLE);
    place.write("held.csv", "x,y,kind\n1,2,b\n");
    let loss = "model.loss={kind=\"cross-entropy\",ignore_index=1}";
    place.train(&[loss, "data.validation=held.csv"]).failed(&["data.validation: ", "no target counts"]);
    place.write("t.csv", "x,y,kind\n1,2,a\n1,3,a\n");
    let all = place.train(&["model.loss={kind=\"cross-entropy\",ignore_index=0}"]);
    all.failed(&["no target counts"]);
    assert!(!all.error.contains("data.validation"), "{all:#?}");
    place.has_no_run();
}

#[test]
fn a_table_is_refused_with_file_line_and_column() {
    let place = Place::with_table(TABLE);
    for (table, parts) in [
        ("x,y,kind\n1,2,a\n3,four,b\n", &["t.csv:3: column 2: 'four' is not a number (column 'y')"][..]),
        ("x,y,kind\r\n1,2,a\r\n\r\n3,\"fo\r\nur\",b\r\n", &["t.csv:4: column 2: 'fo\\r\\nur' is not a number"]),
        ("x,y,kind\n1,2,a\n3,b\n", &["t.csv:3: expected 3 fields, got 2"]),
        ("x,y,kind\n1,2,a\n3,NaN,b\n", &["t.csv:3: column 2: 'NaN' is not a finite number"]),
        ("x,y,kind\n1,2,a\n3,-inf,b\n", &["t.csv:3: column 2: '-inf' is not a finite number"]),
        ("x,y,kind\n1,2,a\n3,1e39,b\n", &["t.csv:3: column 2: 1e39 is beyond the range of a float32"]),
        ("x,y,kind\n1,2,a\n3,4,\n", &["t.csv:3: column 3: the label is empty"]),
        ("x,y,kind\n1,2,a\n3,4,b\n5,6,c\n", &["layer 1 (linear): expected [3] as its output", "got [2]"]),
        ("x,y,kind\n", &["t.csv: there is no data after the header"]),
        ("", &["t.csv: the file is empty"]),
    ] {
        place.write("t.csv", table);
        place.train(&[]).failed(parts);
    }
    place.has_no_run();
}

/// An idx file of bytes with these dimensions.
fn idx(dims: &[u32], content: &[u8]) -> Vec<u8> {
    let header = [&[0, 0, 8, dims.len() as u8][..], &dims.iter().flat_map(|d| d.to_be_bytes()).collect::<Vec<_>>()];
    [&header.concat(), content].concat()
}

#[test]
fn idx_files_are_refused_by_what_is_wrong_with_them() {
    let place = Place::new();
    let data = "[data]\nformat = \"idx\"\nimages = \"i\"\nlabels = \"l\"\nvalidation = \"none\"\n";
    let model = "[model]\nlayers = [\"flatten\", { kind = \"linear\", out = 10 }]\n";
    place.write("t.toml", format!("{data}{model}[train]\nepochs = 1\n"));
    let (images, labels) = (idx(&[2, 2, 2], &[7; 8]), idx(&[2], &[0, 9]));
    for (images, labels, part) in [
        (&images[..21], &labels[..], "/i: "),
        (&images[..3], &labels, "/i: "),
        (&[&[1], &images[1..]].concat(), &labels, "/i: "),
        (&labels, &labels, "/i: "),
        (&images, &images, "/l: "),
        (&images, &labels[..9], "/l: "),
        (&images, &idx(&[3], &[0, 1, 2]), "2"),
        (&idx(&[0, 2, 2], &[]), &idx(&[0], &[]), "/"),
        (&images, &[], "/l: "),
    ] {
        place.write("i", images);
        place.write("l", labels);
        place.train(&[]).failed(&[part]);
    }
    place.has_no_run();
    place.write("i", &images);
    place.write("l", &labels);
    place.train(&[]).well();
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let place = Place::with_table(TABLE);
    // Where nobody can make folders, root included.
    place.train(&["output.dir=/proc/runs"]).failed(&["/proc"]);
}

/// Wherever a path is given: systems have their own words for it, "access denied" among them.
#[test]
fn a_folder_in_the_place_of_a_file_and_a_file_in_that_of_a_folder_are_told_as_such() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    place.write("d.onnx/file", "");
    place.write("d.json/file", "");
    let text = ["--set", "data.format=text", "--set", "data.length=2", "--set"];
    let tokenizer = [&["train", "t.toml"][..], &text, &["data.tokenizer=d.json", "--set", "data.path=t.csv"]].concat();
    for (arguments, told) in [
        (&["train", "runs"][..], "runs: expected a file, found a folder"),
        (&["plan", "runs"], "runs: expected a file, found a folder"),
        (&["tune", "runs"], "runs: expected a file, found a folder"),
        (&["train", "t.toml", "--set", "data.path=runs"], "runs: expected a file, found a folder"),
        (&[&["train", "t.toml"][..], &text, &["data.path=runs"]].concat(), "runs: expected a file, found a folder"),
        (&tokenizer, "d.json: expected a file, found a folder"),
        (&["train", "t.toml", "--init", "runs"], "runs: expected a file, found a folder"),
        (&["train", "t.toml", "--trace", "runs"], "runs: expected a file, found a folder"),
        (&["eval", "runs/t-1", "--data", "runs"], "runs: expected a file, found a folder"),
        (&["predict", "runs/t-1", "--input", "runs"], "runs: expected a file, found a folder"),
        (&["export", "runs/t-1", "d.onnx"], "d.onnx: expected a file, found a folder"),
        (&["train", "--resume", "t.toml"], "t.toml: expected a folder, found a file"),
        (&["train", "t.toml", "--resume", "t.csv"], "t.csv: expected the folder that holds a run's checkpoints, found"),
        (&["tune", "t.toml", "--resume", "t.csv"], "t.csv: expected the folder that holds a run's checkpoints, found"),
        (&["eval", "t.toml"], "t.toml: expected a folder, found a file"),
        (&["predict", "t.toml", "--input", "t.csv"], "t.toml: expected a folder, found a file"),
        (&["generate", "t.toml", "--prompt", "a"], "t.toml: expected a folder, found a file"),
        (&["export", "t.toml", "m.onnx"], "t.toml: expected a folder, found a file"),
        (&["shaders", "--dump", "t.csv"], "t.csv: expected a folder, found a file"),
        (
            &["train", "t.toml", "--set", "output.dir=t.csv/runs"],
            "output.dir: run folders are made in it, but t.csv is a file",
        ),
    ] {
        place.run(arguments).failed(&[told]);
    }
    assert_eq!(place.names("runs"), ["t-1"]);
}
