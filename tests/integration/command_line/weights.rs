//! Weights from and for other programs.

use everygpu::checkpoint::read_tensors;

use super::*;

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
    place.run(&["export", "runs/t-1", "w.pt"]).failed(&["w.pt", "expected a file name that ends in .safetensors"]);
    let both = place.run(&["train", "--resume", "runs/t-1", "--init", "w.safetensors"]);
    assert_eq!(both.code, Some(2), "{both:#?}");
}
