//! Kills a save, a replacement, a prune and an atomic write after every single effect on the disk, and looks at what is
//! left.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{assert_same, bits, names_in, snapshot};
use crate::checkpoint::atomic::crash;
use crate::checkpoint::{Snapshot, Store, write_atomic};
use crate::error::Result;

/// Runs `work` once per crash point, dying at that point, until it gets through; `check` sees what each crash left.
fn crash_everywhere(
    work: impl Fn(&Store) -> Result<()>,
    setup: impl Fn(&Store),
    mut check: impl FnMut(&Store, bool),
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

/// What a snapshot of the timeline that training left, and of the one it went on in, has in it.
const LEFT: f32 = 0.0;
const NEW: f32 = 7.0;

/// Checkpoints of steps 1 to 5, of which training went back to 2.
fn five(store: &Store) {
    (1..=5).for_each(|step| drop(store.save(&snapshot(step, LEFT), (step == 2).then_some(0.5)).unwrap()));
}

/// The steps of the listed checkpoints, each with what its snapshot has in it; all are whole.
fn listed(store: &Store) -> Vec<(u64, f32)> {
    let salt = |step, loaded: &Snapshot| if loaded.state == snapshot(step, NEW).state { NEW } else { LEFT };
    let entries = store.list().unwrap();
    let loaded = entries.iter().map(|entry| (entry.step, Store::load(&entry.path).unwrap()));
    loaded
        .map(|(step, loaded)| {
            assert_same(&loaded, &snapshot(step, salt(step, &loaded)));
            (step, salt(step, &loaded))
        })
        .collect()
}

/// How many whole checkpoints of this step the left timeline has, listed or set aside.
fn left_of(store: &Store, step: u64) -> usize {
    let end = format!("step-{step:08}");
    let is_whole = |name: &String| {
        let copy = tempfile::tempdir().unwrap();
        let to = copy.path().join("copy");
        fs::create_dir(&to).unwrap();
        for file in names_in(&store.folder().join(name)) {
            fs::copy(store.folder().join(name).join(&file), to.join(&file)).unwrap();
        }
        let left = snapshot(step, LEFT);
        Store::load(to).is_ok_and(|loaded| loaded.state == left.state && bits(&loaded.weights) == bits(&left.weights))
    };
    names_in(store.folder()).iter().filter(|name| name.ends_with(&end)).filter(|name| is_whole(name)).count()
}

#[test]
fn a_crash_at_any_point_of_going_back_loses_neither_timeline() {
    let mut seen = [0, 0];
    let points = crash_everywhere(
        |store| store.go_back(&snapshot(2, NEW)).map(drop),
        five,
        |store, finished| {
            let before = [1, 2, 3, 4, 5].map(|step| (step, LEFT));
            let after = [(1, LEFT), (2, NEW)];
            let found = listed(store);
            let gone_back = found == after;
            assert!(gone_back || !finished && found == before, "{found:?}");
            seen[usize::from(gone_back)] += 1;
            (3..=5).for_each(|step| assert_eq!(left_of(store, step), 1, "step {step}"));
            let scores: Vec<_> = store.list().unwrap().iter().map(|entry| entry.score).collect();
            assert_eq!(scores[..2], [None, Some(0.5)]);

            // Pruning does not make more of it than there is, and the run can go on either way.
            store.prune(2, 1).unwrap();
            assert_eq!(listed(store).last(), found.last());
            if !gone_back {
                store.go_back(&snapshot(2, NEW)).unwrap();
            }
            for step in 3..=5 {
                store.save(&snapshot(step, NEW), None).unwrap();
                assert_eq!(listed(store).last(), Some(&(step, NEW)));
                assert_eq!(left_of(store, 5), 1, "the left timeline stays until the new one is beyond it");
            }
            store.save(&snapshot(6, NEW), None).unwrap();
            assert_eq!(listed(store).last(), Some(&(6, NEW)));
            assert_recovers(store);
        },
    );
    assert!(points >= 14, "only {points} crash points");
    assert!(seen.iter().all(|points| *points >= 5), "before and after: {seen:?}");
}

#[test]
fn a_crash_at_any_point_of_getting_beyond_what_was_left_keeps_the_new_timeline() {
    crash_everywhere(
        |store| store.save(&snapshot(6, NEW), None).map(drop),
        |store| {
            five(store);
            store.go_back(&snapshot(2, NEW)).unwrap();
            store.save(&snapshot(4, NEW), None).unwrap();
        },
        |store, finished| {
            let found = listed(store);
            assert_eq!(found[..3], [(1, LEFT), (2, NEW), (4, NEW)]);
            assert!(found.len() == 4 || !finished);
            // What is left of the old timeline is whole, or there is a checkpoint beyond it.
            assert!(found.len() == 4 || (3..=5).all(|step| left_of(store, step) == 1));
            assert_recovers(store);
        },
    );
}

/// Also where training goes back twice, and to an earlier step the second time.
#[test]
fn a_run_may_go_back_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("checkpoints")).unwrap();
    five(&store);
    store.go_back(&snapshot(3, NEW)).unwrap();
    store.save(&snapshot(4, NEW), None).unwrap();
    store.go_back(&snapshot(2, NEW)).unwrap();
    assert_eq!(listed(&store), [(1, LEFT), (2, NEW)]);
    // Without anything to leave behind it is a checkpoint like any other.
    store.go_back(&snapshot(3, NEW)).unwrap();
    assert_eq!(listed(&store), [(1, LEFT), (2, NEW), (3, NEW)]);
    assert_eq!((left_of(&store, 4), left_of(&store, 5)), (1, 1));
    assert_recovers(&store);
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
