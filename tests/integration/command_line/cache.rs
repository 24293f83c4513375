//! What the program keeps between two starts: that an adapter has passed the self-test.

use super::*;

const KNOWN: &str = "has passed the self-test in an earlier process";

/// Trains with a cache folder of the place's own; whether an earlier verdict was taken.
fn took_a_verdict(place: &Place, cache: &str, flags: &[&str]) -> bool {
    let mut program = place.program(&[&["train", "t.toml", "--adapters", "0"], flags].concat());
    let log = "everygpu=debug";
    let ran = Ran::of(program.env("EVERYGPU_CACHE_DIR", cache).env("RUST_LOG", log).output().expect("the binary runs"));
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    ran.error.contains(KNOWN)
}

#[test]
fn an_adapter_that_passed_is_not_tested_at_each_start() {
    let place = Place::with_table(TABLE);
    assert!(!took_a_verdict(&place, "cache", &["--no-cache"]));
    assert_eq!(place.names("cache"), [""; 0]);
    assert!(!took_a_verdict(&place, "cache", &[]));
    let kept = place.names("cache/self-test");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(took_a_verdict(&place, "cache", &[]));
    assert!(!took_a_verdict(&place, "cache", &["--no-cache"]) && !took_a_verdict(&place, "cache", &["--self-test"]));
    place.write(&format!("cache/self-test/{}", kept[0]), "passed: anything");
    assert!(!took_a_verdict(&place, "cache", &[]), "a verdict of something else");
    assert!(took_a_verdict(&place, "cache", &[]), "and written anew");
}

#[test]
fn the_list_of_adapters_tests_and_notes() {
    let place = Place::with_table(TABLE);
    let mut listed = place.program(&["adapters"]);
    assert_eq!(Ran::of(listed.env("EVERYGPU_CACHE_DIR", "cache").output().expect("the binary runs")).code, Some(0));
    assert!(took_a_verdict(&place, "cache", &[]));
}

#[test]
fn without_a_place_to_keep_it_the_test_runs() {
    let place = Place::with_table(TABLE);
    // An empty name, and a folder that cannot be made since a file is there.
    for cache in ["", "t.csv"] {
        assert!(!took_a_verdict(&place, cache, &[]) && !took_a_verdict(&place, cache, &[]), "{cache}");
    }
    assert_eq!(place.read("t.csv"), TABLE);
}
