//! Tests of whole checkpoints: round trips, damage of every kind, and crashes (their own file).

mod crashes;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::error::Result;
use crate::tensor::{Elements, Named, Shape};

/// Names, types, shapes and bits: `==` on tensors would call a NaN different from itself.
fn bits(tensors: &Named<HostTensor>) -> Vec<(String, String, Vec<u8>)> {
    let mut all: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.clone(), format!("{}{}", tensor.dtype(), tensor.shape()), tensor.bytes().to_vec()))
        .collect();
    all.sort();
    all
}

fn assert_same(found: &Snapshot, expected: &Snapshot) {
    assert_eq!(found.step, expected.step);
    assert_eq!(found.state, expected.state);
    assert_eq!(bits(&found.weights), bits(&expected.weights));
    assert_eq!(bits(&found.optimizer), bits(&expected.optimizer));
}

/// A snapshot whose every part depends on `step` and `salt`.
fn snapshot(step: u64, salt: f32) -> Snapshot {
    let tensor = |scale: f32| HostTensor::f32([2, 3], (0..6).map(|i| i as f32 * scale + salt).collect()).unwrap();
    Snapshot {
        step,
        weights: Named::of([("linear.weight", tensor(step as f32)), ("linear.bias", tensor(0.5))]).unwrap(),
        optimizer: Named::of([("linear.weight.m", tensor(-1.0)), ("seen", HostTensor::u32([], vec![7]).unwrap())])
            .unwrap(),
        state: json!({"epoch": step, "lr": 0.1, "salt": salt}),
    }
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

fn any_tensor() -> impl Strategy<Value = HostTensor> {
    // Any bits at all: NaN payloads, negative zero and denormals included.
    (prop::collection::vec(0_usize..4, 0..4), any::<bool>(), any::<u64>()).prop_map(|(dims, float, seed)| {
        let shape = Shape::from(dims);
        let words =
            (0..shape.elements() as u64).map(|i| crate::rng::threefry2x32(crate::rng::words(seed), [i as u32, 0])[0]);
        let elements =
            if float { Elements::F32(words.map(f32::from_bits).collect()) } else { Elements::U32(words.collect()) };
        HostTensor::new(shape, elements).unwrap()
    })
}

fn any_tensors() -> impl Strategy<Value = Named<HostTensor>> {
    prop::collection::btree_map(".{0,12}".prop_filter("reserved", |n| n != "__metadata__"), any_tensor(), 0..5)
        .prop_map(|map| Named::of(map).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_snapshot_round_trips_bit_for_bit(
        step in any::<u64>(), weights in any_tensors(), optimizer in any_tensors(),
        score in any::<f64>(), number in any::<f64>(), counter in any::<u64>(), text in ".*",
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("checkpoints")).unwrap();
        let saved = Snapshot { step, weights, optimizer, state: json!({"f": number, "u": counter, (text.clone()): [text]}) };
        let path = store.save(&saved, Some(score)).unwrap();
        assert_same(&Store::load(&path).unwrap(), &saved);
        let entry = store.latest().unwrap().unwrap();
        prop_assert_eq!((entry.step, entry.path), (step, path));
        prop_assert_eq!(entry.score, Some(score).filter(|s| s.is_finite()));
    }

    #[test]
    fn no_damaged_byte_goes_unnoticed(file in 0_usize..3, place in 0.0..1.0_f64, bit in 0_u32..8) {
        let folder = tempfile::tempdir().unwrap();
        let path = Store::open(folder.path()).unwrap().save(&snapshot(5, 0.25), Some(0.5)).unwrap();
        let file = path.join(["weights.safetensors", "optimizer.safetensors", "state.json"][file]);
        let mut bytes = fs::read(&file).unwrap();
        let at = (place * bytes.len() as f64) as usize;
        bytes[at] ^= 1 << bit;
        fs::write(&file, &bytes).unwrap();
        // Only white space between JSON fields may change without changing the content.
        if let Ok(loaded) = Store::load(&path) {
            prop_assert!(file.ends_with("state.json") && bytes[at].is_ascii_whitespace());
            assert_same(&loaded, &snapshot(5, 0.25));
        }
    }
}

#[test]
fn special_floats_keep_their_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.safetensors");
    let odd = [0x7fc0_0001, 0xffc1_2345, 0x7f80_0001, 0x8000_0000, 1, 0x807f_ffff, 0x7f80_0000, 0xff80_0000];
    let tensors = Named::of([("odd", HostTensor::f32([8], odd.map(f32::from_bits).to_vec()).unwrap())]);
    write_tensors(&path, &tensors.unwrap(), &[("made by", "a test")]).unwrap();
    let read = read_tensors(&path).unwrap();
    assert_eq!(read["odd"].as_f32().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>(), odd);
    assert_eq!(names_in(folder.path()), BTreeSet::from(["odd.safetensors".to_owned()]));
}

#[test]
fn a_save_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut reserved = snapshot(4, 0.0);
    reserved.optimizer.extend([("__metadata__", reserved.optimizer["seen"].clone())]).unwrap();
    let error = message(store.save(&reserved, None));
    assert!(error.contains("the name '__metadata__' is reserved"), "{error}");
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn the_best_and_the_last_are_found_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("a")).unwrap();
    assert_eq!((store.latest().unwrap(), store.best().unwrap()), (None, None));
    for (step, score) in
        [(1, Some(0.2)), (2, Some(0.9)), (3, Some(0.9)), (4, Some(f64::NAN)), (5, None), (100_000_000, Some(0.5))]
    {
        store.save(&snapshot(step, 0.0), score).unwrap();
    }
    fs::create_dir(store.folder().join("step-7 (copy)")).unwrap();
    let steps = || store.list().unwrap().iter().map(|entry| entry.step).collect::<Vec<_>>();
    assert_eq!(steps(), [1, 2, 3, 4, 5, 100_000_000]);
    assert_eq!(store.latest().unwrap().unwrap().step, 100_000_000);
    assert_eq!(store.best().unwrap().unwrap().step, 2);
    assert_eq!(store.prune(2, 1).unwrap().len(), 3);
    assert_eq!(steps(), [2, 5, 100_000_000]);
    store.prune(0, 0).unwrap();
    assert_eq!(steps(), [100_000_000]);
    assert!(store.folder().join("step-7 (copy)").exists());
}

#[test]
fn mixed_and_incomplete_generations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let (first, second) = (store.save(&snapshot(1, 0.0), None).unwrap(), store.save(&snapshot(2, 0.0), None).unwrap());
    fs::copy(first.join("weights.safetensors"), second.join("weights.safetensors")).unwrap();
    let error = message(Store::load(&second));
    assert!(error.contains("step-00000002") && error.contains("belongs to another checkpoint"), "{error}");
    fs::remove_file(second.join("weights.safetensors")).unwrap();
    let error = message(Store::load(&second));
    assert!(error.contains("weights.safetensors: the file is missing"), "{error}");
    fs::write(first.join("optimizer.safetensors"), b"short").unwrap();
    let error = message(Store::load(&first));
    assert!(error.contains("it has 5 bytes, but"), "{error}");
    let error = message(Store::load(folder.path()));
    assert!(error.contains("state.json: the file is missing"), "{error}");
    let error = message(Store::load(folder.path().join("step-00000077")));
    assert!(error.contains("there is no such folder"), "{error}");
    let error = message(Store::open(first.join("state.json")));
    assert!(error.contains("found a file"), "{error}");
}

#[test]
fn foreign_edited_and_newer_states_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let path = store.save(&snapshot(1, 0.0), Some(0.5)).unwrap();
    let text = fs::read_to_string(path.join("state.json")).unwrap();
    for (content, expected) in [
        ("{\"lr\": 1}".to_owned(), "it has no format number"),
        ("[1, 2]".to_owned(), "it has no format number"),
        ("hello".to_owned(), "not the state of an everygpu checkpoint"),
        ("{\"format\": 1}".to_owned(), "it has no checksum"),
        (text[..text.len() / 2].to_owned(), "cut short"),
        (text.replace("\"format\": 1", "\"format\": 2"), "format 2 is newer"),
        (text.replace("\"lr\": 0.1", "\"lr\": 0.2"), "damaged or edited"),
    ] {
        fs::write(path.join("state.json"), content).unwrap();
        let error = message(Store::load(&path));
        assert!(error.contains("state.json: ") && error.contains(expected), "{error}");
        // Listed all the same, so that nobody resumes from an older one without knowing.
        assert_eq!(store.latest().unwrap().unwrap().score, None);
    }
    fs::write(path.join("state.json"), text).unwrap();
    Store::load(&path).unwrap();
}

#[test]
fn files_that_are_not_whole_safetensors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    write_tensors(&path, &snapshot(1, 0.0).weights, &[]).unwrap();
    let whole = fs::read(&path).unwrap();
    let half_type = br#"{"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#;
    let half_type = [&(half_type.len() as u64).to_le_bytes()[..], half_type, &[0; 4]].concat();
    for (content, expected) in [
        (whole[..whole.len() - 1].to_vec(), "cut short"),
        (whole[..40].to_vec(), "end inside the header"),
        ([&whole[..], b"x"].concat(), "appended to"),
        (Vec::new(), "the file is empty"),
        (b"PK\x03\x04 a zip file, as PyTorch writes them".to_vec(), "not a safetensors file"),
        (b"abc".to_vec(), "not a safetensors file"),
        (half_type, "tensor 'w' is of type F16; F32 and U32 are supported"),
    ] {
        fs::write(&path, content).unwrap();
        let error = message(read_tensors(&path));
        assert!(error.contains("weights.safetensors") && error.contains(expected), "{error}");
    }
    let error = message(read_tensors(folder.path().join("none.safetensors")));
    assert!(error.contains("none.safetensors: the file is missing"), "{error}");
}

#[test]
fn differing_tensors_are_listed() {
    let found = snapshot(1, 0.0).weights;
    let shape = |dims: &[usize]| Shape::from(dims);
    let expected = Named::of([("linear.bias", shape(&[2, 3])), ("linear.weight", shape(&[2, 3]))]).unwrap();
    match_tensors("w", &expected, &found).unwrap();
    let expected = Named::of([("linear.bias", shape(&[6])), ("head.weight", shape(&[2, 3]))]).unwrap();
    assert_eq!(
        message(match_tensors("w", &expected, &found)),
        "checkpoint w: its tensors are not those of this model; missing: head.weight [2, 3]; extra: linear.weight [2, 3]; \
         wrong shape: linear.bias is [2, 3], expected [6]"
    );
    let many = Named::of((0..13).map(|i| (format!("t{i}"), Shape::from([i])))).unwrap();
    let error = message(match_tensors("w", &many, &Named::default()));
    assert!(error.ends_with("t9 [9], and 3 more"), "{error}");
}
