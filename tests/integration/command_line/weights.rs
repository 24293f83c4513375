//! Weights from and for other programs.

use everygpu::checkpoint::{read_tensors, write_tensors};
use everygpu::tensor::{HostTensor, Named};

use super::*;
use crate::onnx::checker;

/// A run that has been trained, and its weights in `w.safetensors` under another module's names.
fn exported() -> Place {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    place.run(&["export", "runs/t-1", "w.safetensors", "--map", "linear_1=net.0"]).well();
    place
}

#[test]
fn exported_weights_are_where_another_training_starts() {
    let place = exported();
    let names: Vec<_> = read_tensors(place.path("w.safetensors")).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["net.0.bias", "net.0.weight"]);
    let init = ["train", "t.toml", "--init", "w.safetensors", "--init-map", "net.0=linear_1"];
    // At a learning rate that changes nothing.
    let said =
        place.run(&[&init[..], &["--set", "optimizer.lr=1e-30", "--set", "optimizer.weight_decay=0"]].concat()).well();
    assert!(said.out.contains("2 tensors from w.safetensors"), "{said:#?}");
    place.run(&["export", "runs/t-2", "again.safetensors", "--map", "linear_1=net.0"]).well();
    let tensors = |name: &str| read_tensors(place.path(name)).unwrap();
    assert_eq!(tensors("again.safetensors"), tensors("w.safetensors"));
}

#[test]
fn weights_that_do_not_fit_are_listed() {
    let place = exported();
    let init = ["train", "t.toml", "--init", "w.safetensors"];
    let missing = ["w.safetensors", "missing: linear_1.weight [2, 2], linear_1.bias [2]", "extra: net.0.bias [2]"];
    place.run(&init).failed(&missing);
    assert_eq!(place.names("runs"), ["t-1"]);
    place.run(&[&init[..], &["--init-map", "net.0"]].concat()).failed(&["--init-map", "expected FROM=TO"]);
    place.run(&[&init[..], &["--init-partial"]].concat()).failed(&["no tensor fits the model", "a name map may help"]);
    let partly = ["--init-partial", "--init-map", "net.0.bias=linear_1.bias"];
    let said = place.run(&[&init[..], &partly].concat()).well().out;
    assert!(said.contains("1 keep their initial values: linear_1.weight"), "{said}");
    assert!(said.contains("1 of the file are not used: net.0.weight"), "{said}");
    place
        .run(&["export", "runs/t-1", "w.pt"])
        .failed(&["w.pt", "expected a file name that ends in .safetensors or .onnx"]);
    let both = place.run(&["train", "--resume", "runs/t-1", "--init", "w.safetensors"]);
    assert_eq!(both.code, Some(2), "{both:#?}");
}

#[test]
fn a_rule_that_renames_nothing_is_refused() {
    let place = exported();
    let export = |rules: &[&str]| {
        let rules = rules.iter().flat_map(|rule| ["--map", rule]);
        place.run(&["export", "runs/t-1", "v.safetensors"].into_iter().chain(rules).collect::<Vec<_>>())
    };
    export(&["linaer_1=0"])
        .failed(&["'linaer_1=0' renames no tensor", "nearest names are: linear_1.bias, linear_1.weight"]);
    // An earlier rule takes all that it would rename.
    export(&["linear_1=0", "linear_1.bias=b"]).failed(&["'linear_1.bias=b' renames no tensor"]);
    assert!(!place.path("v.safetensors").exists());
    export(&["linear_1.bias=b", "linear_1=0"]).well();

    let init =
        ["train", "t.toml", "--init", "w.safetensors", "--init-map", "net.0=linear_1", "--init-map", "net.1=linear_2"];
    for more in [&[][..], &["--init-partial"]] {
        let names = "nearest names are: net.0.bias, net.0.weight";
        place.run(&[&init[..], more].concat()).failed(&["'net.1=linear_2' renames no tensor", names]);
    }
    assert_eq!(place.names("runs"), ["t-1"]);
}

#[test]
fn an_exported_model_predicts_from_the_data_as_it_is() {
    let place = Place::with_table(TABLE);
    let settings = ["data.scale=standardize", "optimizer.lr=0.3", "optimizer.ema_decay=0.5"];
    place.train(&settings).well();
    let said = place.run(&["export", "runs/t-1", "m.onnx"]).well().out;
    assert!(said.starts_with(&native("m.onnx: the model of runs/t-1/checkpoints/step-")), "{said}");
    assert!(said.ends_with(", for any number of samples of f32[2]\n"), "{said}");
    let model = std::fs::read(place.path("m.onnx")).expect("readable");
    assert!(model.windows(9).any(|bytes| bytes == br#"["a","b"]"#), "there are no class names");

    let predicted = place.run(&["predict", "runs/t-1", "--input", "t.csv"]).well().out;
    let rows = predicted.lines().skip(1).flat_map(|line| line.split(',').skip(1));
    let probabilities: Vec<f32> = rows.map(|cell| cell.parse().expect("a number")).collect();
    let tensor = |name: &str, values: Vec<f32>| {
        Named::of([(name, HostTensor::f32([3, 2], values).expect("3 × 2"))]).expect("one name")
    };
    write_tensors(place.path("in"), &tensor("input", vec![1., 2., 3., 4., 5., 6.]), &[]).expect("writable");
    write_tensors(place.path("out"), &tensor("prediction", probabilities), &[]).expect("writable");
    let Some(mut checker) = checker() else { return };
    let checked = Ran::of(checker.current_dir(place.path("")).args(["m.onnx", "in", "out"]).output().expect("it runs"));
    assert_eq!(checked.well().out, "1 passed\n");
}

#[test]
fn models_have_no_names_to_map_and_go_nowhere_without_a_run() {
    let place = Place::with_table(TABLE);
    place.train(&[]).well();
    place.run(&["export", "runs/t-1", "m.onnx", "--map", "linear_1=0"]).failed(&["--map", "leave it out"]);
    place.run(&["export", "runs/t-1", "none/m.onnx"]).failed(&["none/m.onnx: "]);
    assert!(!place.path("m.onnx").exists());
    // The file is looked at before the run.
    place.run(&["export", "runs/no-such-run", "none/m.onnx"]).failed(&["none/m.onnx: "]);
}

#[test]
fn weights_in_another_format_are_told_with_the_way_to_convert_them() {
    let place = Place::with_table(TABLE);
    let index = r#"{"metadata": {}, "weight_map": {"a": "m-1-of-2.safetensors", "b": "m-2-of-2.safetensors"}}"#;
    for (name, content, parts) in [
        ("w.pt", &b"PK\x03\x04archive/data.pkl"[..], ["what torch.save writes", "safetensors.torch.save_file"]),
        ("w.bin", b"\x80\x02}q\x00X\x06\x00\x00\x00weight", ["what torch.save writes", "torch.load"]),
        (
            "w.safetensors.index.json",
            index.as_bytes(),
            ["the index of weights that lie in 2 files (m-1-of-2.safetensors, …)", "join"],
        ),
        ("w.json", b"{\"a\": 1}", ["not a safetensors file", "w.json"]),
    ] {
        place.write(name, content);
        place.run(&["train", "t.toml", "--init", name]).failed(&parts);
    }
    place.has_no_run();
}

#[test]
fn a_network_without_parameters_has_nothing_to_start_from() {
    let place = exported();
    for partial in [&[][..], &["--init-partial"]] {
        let setting = ["--set", "model.layers=[\"relu\"]"];
        let ran = place.run(&[&["train", "t.toml", "--init", "w.safetensors"], &setting[..], partial].concat());
        ran.failed(&["w.safetensors", "the model has no parameters, so that there is nothing to take from the file"]);
    }
    write_tensors(place.path("none.safetensors"), &Named::default(), &[]).expect("writable");
    let ran = place.run(&["train", "t.toml", "--init", "none.safetensors", "--init-partial"]);
    ran.failed(&["none.safetensors: the file has no tensors"]);
}
