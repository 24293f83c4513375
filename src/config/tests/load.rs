//! Data as a run file names it: what is read, refused, and put in the form of the training's.

use std::fs;
use std::path::Path;

use crate::config::*;
use crate::data::{Border, Dataset};
use crate::error::Result;
use crate::nn::Loss;
use crate::run::DataCard;

fn load(dir: &Path, data: &str) -> Result<LoadedData> {
    let text = format!("[data]\n{data}\n[model]\nlayers = [{{ kind = \"linear\", out = 2 }}]\n");
    RunConfig::parse(&text, "run.toml", dir, &[])?.data.load(0, &Loss::cross_entropy())
}

#[test]
fn a_validation_file_has_the_classes_and_the_scale_of_training() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "x;kind\n1;no\n3;yes\n5;yes\n").unwrap();
    fs::write(dir.path().join("b.csv"), "x;kind\n5;yes\n").unwrap();
    let keys = "format = \"csv\"\npath = \"a.csv\"\ndelimiter = \";\"\nlabel = \"kind\"\nscale = \"standardize\"\n";
    let loaded = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap();
    let validation = loaded.validation.unwrap().gather(&[0]).unwrap();
    assert_eq!(validation.targets.as_u32().unwrap(), [1]);
    assert!((validation.inputs.as_f32().unwrap()[0] - 1.224_745).abs() < 1e-5);
    assert!(load(dir.path(), &format!("{keys}validation = \"none\"")).unwrap().validation.is_none());

    fs::write(dir.path().join("b.csv"), "x;kind\n5;maybe\n").unwrap();
    let error = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap_err().to_string();
    assert!(error.contains("b.csv:2: column 2: "), "{error}");
    fs::write(dir.path().join("b.csv"), "y;kind\n5;yes\n").unwrap();
    let error = load(dir.path(), &format!("{keys}validation = \"b.csv\"")).unwrap_err().to_string();
    assert!(error.contains("b.csv: there is no column 'x', which the run was trained on"), "{error}");
}

#[test]
fn targets_that_the_loss_has_no_meaning_for_are_named_by_the_files_sample() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "x,y\n1,0\n2,1\n3,1\n4,2\n5,1\n").unwrap();
    let load = |loss: &str, data: &str| {
        let text = format!(
            "[data]\nformat = \"csv\"\npath = \"a.csv\"\n{data}\n[model]\nlayers = [{{ kind = \"linear\", out = 1 }}]\n\
             loss = \"{loss}\"\n"
        );
        let config = RunConfig::parse(&text, "run.toml", dir.path(), &[]).unwrap();
        let loaded = config.data.load(3, &config.model.loss)?;
        let task = config.task(&loaded.card)?;
        task.training(1)?;
        task.check(loaded.train.as_ref())
    };
    let message = |loss: &str, data: &str| load(loss, data).unwrap_err().to_string();
    assert!(load("mse", "regression = true").is_ok());
    assert_eq!(
        message("bce", "regression = true"),
        "targets for bce: sample 3 (from 0) has the target 2, expected a number from 0 to 1"
    );
    assert!(
        message("kl", "regression = true").starts_with("targets for kl: sample 0 (from 0) has targets of sum 0.0000")
    );
    assert!(message("cross-entropy", "regression = true").contains("for numbers take mse"));
    // What the inputs become is known after they are scaled.
    assert!(load("bce", "target = \"input\"\nscale = \"max\"\nvalidation = \"none\"").is_ok());
    assert_eq!(
        message("bce", "target = \"input\"\nvalidation = \"none\""),
        "targets for bce: sample 1 (from 0) has the target 2, expected a number from 0 to 1"
    );
}

#[test]
fn labels_of_pairs_are_apart_and_alike_in_this_order() {
    let dir = tempfile::tempdir().unwrap();
    let load = |labels: [&str; 3], regression: bool| {
        let rows: String = labels.iter().map(|label| format!("1,2,3,4,{label}\n")).collect();
        fs::write(dir.path().join("a.csv"), format!("a,b,c,d,y\n{rows}")).unwrap();
        let text = format!(
            "[data]\nformat = \"csv\"\npath = \"a.csv\"\nshape = [2, 2]\nregression = {regression}\n[model]\n\
             layers = [{{ kind = \"linear\", out = 3 }}]\nloss = \"cosine-embedding\"\n"
        );
        let config = RunConfig::parse(&text, "run.toml", dir.path(), &[]).unwrap();
        let loaded = config.data.load(3, &config.model.loss)?;
        let task = config.task(&loaded.card)?;
        task.training(1)?;
        task.check(loaded.train.as_ref())?;
        loaded.train.gather(&[0]).map(|batch| batch.targets.shape().to_string())
    };
    assert_eq!(load(["1", "-1", "1"], false).unwrap(), "[1]");
    assert_eq!(load(["1", "0", "1"], false).unwrap(), "[1]");
    assert_eq!(load(["1", "-1", "1"], true).unwrap(), "[1, 1]");
    for (labels, found) in [(["1", "1", "1"], "1"), (["same", "other", "same"], "other, same")] {
        let error = load(labels, false).unwrap_err().to_string();
        let expected = "targets for cosine-embedding: expected the labels -1 and 1, or 0 and 1, got";
        assert_eq!(error, format!("{expected} {found}"));
    }
    let error = load(["1", "0", "1"], true).unwrap_err().to_string();
    assert!(error.contains("sample 1 (from 0) has the target 0, expected -1 (apart) or 1 (alike)"), "{error}");
}

#[test]
fn a_missing_file_is_named_by_its_whole_path() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(dir.path(), "format = \"mnist\"\ndir = \"m\"").unwrap_err().to_string();
    let file = std::path::absolute(dir.path()).unwrap().join("m").join("train-images-idx3-ubyte");
    assert!(error.starts_with(&file.display().to_string()), "{error}");
}

/// An idx file of unsigned bytes.
fn idx(kind: u8, dims: &[u8], bytes: &[u8]) -> Vec<u8> {
    let sizes = dims.iter().flat_map(|&dim| [0, 0, 0, dim]);
    [0, 0, 8, kind].into_iter().chain(sizes).chain(bytes.iter().copied()).collect()
}

/// Zeros of the file, scaled like its values, in training, validation, and what comes later.
#[test]
fn images_get_a_border_wherever_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    for part in ["train", "t10k"] {
        write(&format!("{part}-images-idx3-ubyte"), &idx(3, &[2, 1, 2], &[10, 20, 30, 40]));
        write(&format!("{part}-labels-idx1-ubyte"), &idx(1, &[2], &[0, 1]));
    }
    let keys = "format = \"mnist\"\ndir = \".\"\npadding = [0, 1, 1, 0]\nscale = \"standardize-channels\"";
    let text = format!("[data]\n{keys}\n[model]\nlayers = [\"flatten\", {{ kind = \"linear\", out = 2 }}]\n");
    let config = RunConfig::parse(&text, "run.toml", dir.path(), &[]).unwrap();
    let loaded = config.data.load(0, &config.model.loss).unwrap();
    assert_eq!((loaded.card.input.as_slice(), loaded.card.border), (&[1, 2, 3][..], Border([0, 1, 1, 0])));
    // Two images of six pixels, four of them zeros: mean 100/12, mean square 3000/12.
    let mean = 100.0_f64 / 12.0;
    let deviation = (250.0 - mean * mean).sqrt();
    let expected = [0., 10., 20., 0., 0., 0., 0., 30., 40., 0., 0., 0.].map(|v: f64| (v - mean) / deviation);
    let check = |inputs: &[f32]| {
        let close = inputs.iter().zip(expected).all(|(&found, right)| (f64::from(found) - right).abs() < 1e-6);
        assert!(close && inputs.len() == 12, "{inputs:?}, expected {expected:?}");
    };
    let of = |data: &dyn Dataset| data.gather(&[0, 1]).unwrap().inputs.as_f32().unwrap().to_vec();
    check(&of(loaded.train.as_ref()));
    check(&of(loaded.validation.unwrap().as_ref()));
    // The card, written and read again, is enough.
    let card: DataCard = serde_json::from_str(&serde_json::to_string(&loaded.card).unwrap()).unwrap();
    assert_eq!(card, loaded.card);
    check(&of(config.data.read_other(dir.path(), &card).unwrap().as_ref()));
    let images = dir.path().join("t10k-images-idx3-ubyte");
    check(config.data.read_inputs(&images, &card).unwrap().as_f32().unwrap());

    write("wide", &idx(3, &[1, 2, 3], &[0; 6]));
    let error = config.data.read_inputs(&dir.path().join("wide"), &card).unwrap_err().to_string();
    assert!(error.ends_with("wide: expected samples of [1, 1, 2], got [1, 2, 3]"), "{error}");
}

#[test]
fn what_has_no_height_and_width_gets_no_border() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "a,b,kind\n1,2,x\n3,4,y\n5,6,x\n").unwrap();
    let keys = "format = \"csv\"\npath = \"a.csv\"\nvalidation = \"none\"";
    let error = load(dir.path(), &format!("{keys}\npadding = 1")).unwrap_err().to_string();
    assert_eq!(error, "data.padding: expected samples of shape [channels, height, width] to pad, got [2]");
    let shaped = load(dir.path(), &format!("{keys}\nshape = [2, 1, 1]\npadding = [0, 1]")).unwrap();
    let inputs = shaped.train.gather(&[1]).unwrap().inputs;
    assert_eq!(inputs.as_f32().unwrap(), [0., 3., 0., 0., 4., 0.]);
    let error = load(dir.path(), &format!("{keys}\npadding = -1")).unwrap_err().to_string();
    assert!(
        error.contains("data.padding: expected a whole number, [vertical, horizontal] or [top, bottom,"),
        "{error}"
    );
}
