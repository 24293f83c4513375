//! Kills a save, a replacement, a prune and an atomic write after every single effect on the disk, and looks at what is
//! left.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{assert_same, names_in, snapshot};
use crate::checkpoint::atomic::crash;
use crate::checkpoint::{Store, write_atomic};
use crate::error::Result;

/// Runs `work` once per crash point, dying at that point, until it gets through; `check` sees what each crash left.
fn crash_everywhere(
    work: impl Fn(&Store) -> Result<()>,
    setup: impl Fn(&Store),
    check: impl Fn(&Store, bool),
) -> usize {
    for points in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("checkpoints")).unwrap();
        setup(&store);
        crash::after(Some(points));
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&store)));
        crash::after(None);
        let finished = outcome.is_ok();
        check(&store, finished);
        if finished {
            outcome.unwrap_or_else(|_| unreachable!()).unwrap();
            return points;
        }
    }
    unreachable!()
}

/// Whatever a crash left, the next save works and leaves nothing hidden.
fn assert_recovers(store: &Store) {
    store.save(&snapshot(9, 9.0), None).unwrap();
    assert_same(&Store::load(store.latest().unwrap().unwrap().path).unwrap(), &snapshot(9, 9.0));
    assert!(names_in(store.folder()).iter().all(|name| name.starts_with("step-")), "{:?}", names_in(store.folder()));
    for entry in store.list().unwrap() {
        Store::load(entry.path).unwrap();
    }
}

#[test]
fn a_crash_at_any_point_of_a_save_keeps_the_earlier_checkpoint() {
    let points = crash_everywhere(
        |store| store.save(&snapshot(2, 0.0), None).map(drop),
        |store| drop(store.save(&snapshot(1, 0.0), Some(0.5)).unwrap()),
        |store, finished| {
            let entries = store.list().unwrap();
            assert_same(&Store::load(&entries[0].path).unwrap(), &snapshot(1, 0.0));
            for entry in &entries {
                assert_same(&Store::load(&entry.path).unwrap(), &snapshot(entry.step, 0.0));
            }
            assert!(!finished || entries.len() == 2);
            assert_recovers(store);
        },
    );
    assert!(points >= 9, "only {points} crash points: three files alone have six");
}

#[test]
fn a_crash_at_any_point_of_the_first_save_leaves_none_or_a_whole_one() {
    crash_everywhere(
        |store| store.save(&snapshot(1, 0.0), None).map(drop),
        |_| {},
        |store, _| {
            if let Some(entry) = store.latest().unwrap() {
                assert_same(&Store::load(entry.path).unwrap(), &snapshot(1, 0.0));
            }
            assert_recovers(store);
        },
    );
}

#[test]
fn a_crash_at_any_point_of_a_replacement_leaves_the_old_or_the_new() {
    let points = crash_everywhere(
        |store| store.save(&snapshot(1, 2.0), Some(0.9)).map(drop),
        |store| drop(store.save(&snapshot(1, 1.0), Some(0.5)).unwrap()),
        |store, finished| {
            let entries = store.list().unwrap();
            assert_eq!(entries.len(), 1);
            let salt = if entries[0].score == Some(0.9) { 2.0 } else { 1.0 };
            assert!(!finished || salt == 2.0);
            assert_same(&Store::load(&entries[0].path).unwrap(), &snapshot(1, salt));
            assert_recovers(store);
            assert_eq!(store.list().unwrap().len(), 2);
        },
    );
    assert!(points >= 11, "only {points} crash points");
}

#[test]
fn a_crash_at_any_point_of_pruning_leaves_whole_checkpoints() {
    crash_everywhere(
        |store| store.prune(1, 0).map(drop),
        |store| (1..=3).for_each(|step| drop(store.save(&snapshot(step, 0.0), None).unwrap())),
        |store, _| {
            for entry in store.list().unwrap() {
                assert_same(&Store::load(entry.path).unwrap(), &snapshot(entry.step, 0.0));
            }
            assert_eq!(store.latest().unwrap().unwrap().step, 3);
            assert_recovers(store);
        },
    );
}

#[test]
fn a_crash_at_any_point_of_an_atomic_write_leaves_the_old_or_the_new_file() {
    for points in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        write_atomic(&path, b"old").unwrap();
        crash::after(Some(points));
        let finished = catch_unwind(|| write_atomic(&path, b"new").unwrap()).is_ok();
        crash::after(None);
        let content = fs::read(&path).unwrap();
        assert!(content == b"new" || !finished && content == b"old");
        write_atomic(&path, b"newer").unwrap();
        assert_eq!(names_in(folder.path()).len(), 1);
        if finished {
            break;
        }
    }
}
