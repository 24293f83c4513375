//! What `everygpu profile` says of a run: every dispatch of its plan once, and sums that are those of their parts. No
//! times are expected.

use super::*;

/// What `plan` prints of each dispatch of a micro-batch: kernel, workgroups, layer.
fn planned(plan: &str) -> Vec<[String; 3]> {
    let listing = plan.split_once(" dispatches a micro-batch\n\n").expect("it lists them").1;
    let lines = listing.lines().take_while(|line| !line.is_empty());
    let parts = |line: &str| {
        let (work, layer) = line.split_once("  # ").unwrap_or((line, ""));
        let mut words = work.split_whitespace().skip(1).map(str::to_owned);
        [words.next().expect("a kernel"), words.next().expect("workgroups"), layer.to_owned()]
    };
    lines.map(parts).collect()
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("expected seconds, got {value}"))
}

#[track_caller]
fn is_about(sum: f64, expected: f64) {
    assert!((sum - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{sum}, not {expected}");
}

#[test]
fn every_dispatch_of_the_plan_is_timed_once() {
    let (place, digits) = (Place::new(), example("digits.toml"));
    let plan = place.run(&["plan", &digits, "--adapters", "0"]).well().out;
    let printed = place.run(&["profile", &digits, "--adapters", "0", "--seconds", "0.05", "--json"]).well().out;
    let profile: Value = serde_json::from_str(&printed).expect("one JSON document");
    let dispatches = profile["dispatches"].as_array().expect("a list");
    assert_eq!(profile["micro_batch"], 64, "the run's batch");

    let of_part = |part: &str| dispatches.iter().filter(|d| d["part"] == part).collect::<Vec<_>>();
    let (gradients, update) = (of_part("gradients"), of_part("update"));
    assert_eq!(gradients.len() + update.len(), dispatches.len());
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let timed = |dispatch: &&Value| {
        let groups: Vec<_> = dispatch["groups"].as_array().expect("a list").iter().map(Value::to_string).collect();
        [word(&dispatch["kernel"]), groups.join("×"), word(&dispatch["layer"])]
    };
    assert_eq!(gradients.iter().map(timed).collect::<Vec<_>>(), planned(&plan));
    assert!(plan.contains(&format!("\n{} dispatches an update\n", update.len())), "{}\n{plan}", update.len());

    let sum = |of: &[&Value]| of.iter().map(|d| seconds(&d["seconds"])).sum::<f64>();
    is_about(seconds(&profile["gradients"]), sum(&gradients));
    is_about(seconds(&profile["update"]), sum(&update));
    is_about(
        ["gradients", "update", "gaps"].iter().map(|part| seconds(&profile[part])).sum(),
        seconds(&profile["step"]),
    );
    for (table, key) in [("by_kernel", "kernel"), ("by_layer", "layer")] {
        let groups = profile[table].as_array().expect("a list");
        is_about(groups.iter().map(|group| seconds(&group["share"])).sum(), 1.0);
        for group in groups {
            let members: Vec<_> = dispatches.iter().filter(|d| d[key] == group["name"]).collect();
            assert_eq!(group["dispatches"], members.len(), "{group}");
            is_about(seconds(&group["seconds"]), sum(&members));
        }
        let counts = groups.iter().map(|group| group["dispatches"].as_u64().expect("a number"));
        assert_eq!(counts.sum::<u64>() as usize, dispatches.len(), "{table}");
    }
    // The first linear layer: 64 rows of 512 numbers become 64, and back, and its weight's gradient.
    let counted = gradients.iter().filter(|d| d["layer"] == "linear_1" && d["flops"] == 2 * 64 * 64 * 512).count();
    assert_eq!(counted, 3, "{printed}");
    assert!(seconds(&profile["ceilings"]["gflops"]) > 0.0 && seconds(&profile["ceilings"]["gbytes"]) > 0.0);
    place.has_no_run();
}

#[test]
fn a_profile_is_printed_as_tables() {
    let place = Place::new();
    let arguments = ["--micro-batch", "3", "--seconds", "0.05", "--top", "2", "--adapters", "0"];
    let out = place.run(&[&["profile", &example("digits.toml")], &arguments[..]].concat()).well().out;
    let titles = ["by kernel", "by layer", "by dispatch", " others "];
    for part in ["micro-batch of 3, medians of", "GFLOP/s in registers"].into_iter().chain(titles) {
        assert!(out.contains(part), "{part}\n{out}");
    }
    let refusals = [("--seconds", "expected a number from 0.001 to 600"), ("--micro-batch", "0 is not in 1..")];
    for (wrong, expected) in refusals {
        let ran = place.run(&["profile", "t.toml", wrong, "0"]);
        assert!(ran.code == Some(2) && ran.error.contains(expected), "{ran:#?}");
    }
}
