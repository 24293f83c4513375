//! Exit codes, help, and commands that need no adapter; what is said where there is none.

use super::*;

#[test]
fn wrong_usage_exits_with_2_and_help_with_0() {
    for arguments in [&["train"][..], &["nothing"], &["plan", "run.toml", "--micro-batch", "0"], &[]] {
        assert_eq!(everygpu(arguments).0, 2, "{arguments:?}");
    }
    for command in
        ["adapters", "demo", "train", "eval", "predict", "generate", "export", "plan", "profile", "tune", "shaders"]
    {
        let (code, out, _) = everygpu(&[command, "--help"]);
        assert!(code == 0 && out.contains("Usage:"), "{command}: {out}");
    }
}

#[test]
fn a_failure_exits_with_1_and_one_line() {
    let digits = example("digits.toml");
    for (arguments, expected) in [
        (&["train", "no.toml"][..], "error: no.toml: "),
        (
            &["plan", &digits, "--set", "train.batch=0"],
            "error: --set train.batch=0: train.batch: expected a whole number of at least 1, got 0\n",
        ),
        (
            &["train", &digits, "--set", "optimizer.learn_rate=1"],
            "error: --set optimizer.learn_rate=1: unknown key 'optimizer.learn_rate'; did you mean 'optimizer.lr'?\n",
        ),
        (
            &["plan", &digits, "--set", "model.layers=[\"flatten\", {kind=\"conv2d\", out=1, kernel=3}]"],
            "error: --set model.layers=[\"flatten\", {kind=\"conv2d\", out=1, kernel=3}]: layer 2 (conv2d): expected samples of shape [channels, height, width], got [64]; a reshape layer in \
             front can make them so\n",
        ),
        (&["plan", &digits, "--micro-batch", "4000000000"], "error: adapter 0 ("),
    ] {
        let (code, _, error) = everygpu(arguments);
        assert_eq!(code, 1, "{error}");
        assert!(error.starts_with(expected) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn the_plan_is_printed_with_its_bytes() {
    let (code, out, error) = everygpu(&["plan", &example("digits.toml"), "--micro-batch", "7"]);
    assert_eq!(code, 0, "{error}");
    for part in ["input      input = f32[7, 1, 8, 8]", "dispatches a micro-batch", "bucket 0: ", "total for training"] {
        assert!(out.contains(part), "{part}\n{out}");
    }
}

/// Training has room in just the bytes that its plan says, and in none fewer.
#[test]
fn a_training_takes_the_planned_bytes() {
    let place = Place::with_table(TABLE);
    let layers = "model.layers=[{kind=\"linear\", out=256}, \"relu\", {kind=\"linear\", out=2}]";
    let with = |command: &str, rows: &str, more: &[&str]| {
        let rows = format!("train.micro_batch={rows}");
        place.run(&[&[command, "t.toml", "--adapters", "0", "--set", layers, "--set", &rows], more].concat())
    };
    for rows in ["1", "2"] {
        let planned = with("plan", rows, &["--micro-batch", rows]).well().out;
        let total = planned.lines().find_map(|line| line.strip_suffix("  total for training")).expect("a total");
        let total: u64 = total.trim().parse().expect("a number");
        with("train", rows, &["--memory-limit", &total.to_string()]).well();
        let less = with("train", rows, &["--memory-limit", &(total - 1).to_string()]);
        assert!(less.error.contains("out of memory"), "{rows}: {}", less.error);
    }
}

/// 2·3 + 3 of the first layer, weight and bias of the norm, 3·2 + 2 of the last; not the norm's 7 running statistics.
#[test]
fn running_statistics_are_no_parameters() {
    let place = Place::with_table(TABLE);
    let layers = "model.layers=[{kind=\"linear\", out=3}, {kind=\"batch_norm\", group=2}, {kind=\"linear\", out=2}]";
    let trained = place.train(&[layers]).well();
    assert!(trained.out.starts_with("23 parameters, 3 training samples, "), "{}", trained.out);
}

#[test]
fn a_plan_needs_no_data_where_the_run_file_tells_the_shape() {
    let (code, out, error) = everygpu(&["plan", &example("mnist.toml"), "--set", "data.dir=nowhere"]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("going by the run file") && out.contains("f32[64, 1, 28, 28]"), "{error}");
}

#[test]
fn every_shader_is_dumped_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, error) = everygpu(&["shaders", "--dump", &folder.path().display().to_string()]);
    assert_eq!(code, 0, "{error}");
    let mut sources: Vec<String> = std::fs::read_dir(folder.path())
        .expect("it was made")
        .map(|file| std::fs::read_to_string(file.expect("readable").path()).expect("readable"))
        .collect();
    let count = sources.len();
    sources.sort_unstable();
    sources.dedup();
    assert!(count > 50 && sources.len() == count, "{count} files, {} distinct", sources.len());
}

#[test]
fn help_names_every_command_and_setting() {
    let (_, out, _) = everygpu(&["--help"]);
    for command in
        ["adapters", "demo", "train", "eval", "predict", "generate", "export", "plan", "profile", "tune", "shaders"]
    {
        assert!(out.contains(&format!("\n  {command} ")), "{command}\n{out}");
    }
    let options: [(&str, &[&str]); 6] = [
        ("adapters", &["--json"]),
        ("demo", &["--set", "--adapters", "--replicas", "--memory-limit"]),
        ("train", &["RUN.toml", "--set", "--adapters", "--replicas", "--memory-limit", "--resume"]),
        ("eval", &["RUN_DIR", "--data", "--checkpoint", "best", "latest"]),
        ("predict", &["RUN_DIR", "--input", "--format", "csv", "jsonl"]),
        ("plan", &["RUN.toml", "--micro-batch", "--set"]),
    ];
    for (command, options) in options {
        let (_, out, _) = everygpu(&[command, "--help"]);
        for option in options {
            assert!(out.contains(option), "{command}: {option}\n{out}");
        }
    }
}

#[test]
fn every_example_has_a_plan() {
    for entry in std::fs::read_dir(example("")).expect("readable") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "toml") {
            let (code, out, error) = everygpu(&["plan", &path.display().to_string()]);
            assert!(code == 0 && out.contains("total for training"), "{}: {error}", path.display());
        }
    }
}

#[test]
fn the_adapters_are_json_on_request() {
    let ran = Ran::of(program().args(["adapters", "--json"]).output().expect("the binary runs")).well();
    let list: Vec<Value> = serde_json::from_str(&ran.out).expect("a JSON array");
    assert!(!list.is_empty());
    for (index, adapter) in list.iter().enumerate() {
        assert_eq!(adapter["index"], index);
        assert!(["name", "backend", "type", "driver"].iter().all(|key| adapter[key].is_string()), "{adapter}");
        assert!(adapter["self_test"]["passed"].is_boolean(), "{adapter}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn without_an_adapter_the_one_message_says_what_to_install() {
    let place = Place::with_table(TABLE);
    for arguments in [&["adapters"][..], &["adapters", "--json"], &["train", "t.toml"], &["demo"]] {
        let mut program = place.program(arguments);
        program.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
        // OpenGL is looked for where there is nothing else.
        program.env("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent").env("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent");
        let ran = Ran::of(program.output().expect("the binary runs"));
        ran.failed(&["error: no usable WebGPU adapter: ", "apt install mesa-vulkan-drivers libvulkan1"]);
        assert_eq!(ran.out, "");
    }
    place.has_no_run();
}

#[test]
fn the_scripts_ask_for_the_rust_that_the_manifest_asks_for() {
    let read = |name: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("it is in the repository")
    };
    let (manifest, script) = (read("Cargo.toml"), read("scripts/setup.sh"));
    let after = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("the key is there");
        line.trim_matches('"').to_owned()
    };
    assert_eq!(after(&script, "RUST_NEEDED="), after(&manifest, "rust-version = "));
}

#[test]
fn the_documentation_has_every_key() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/run-file.md");
    let page = std::fs::read_to_string(page).expect("it is in the repository");
    let layers = "[{kind=\"conv2d\",out=1,kernel=1},{kind=\"avg_pool2d\",kernel=1},{kind=\"max_pool2d\",kernel=1},\
                  {kind=\"dropout\",probability=0.1},{kind=\"reshape\",shape=[64]},{kind=\"linear\",out=10,name=\"a\"}]";
    let files = [
        "format=\"csv\"\npath=\"a\"\nlabel=1\nshape=[2]",
        "format=\"idx\"\nimages=\"a\"\nlabels=\"b\"",
        "format=\"mnist\"\ndir=\"a\"",
        "format=\"digits\"",
    ];
    let rests = ["", "[optimizer]\nkind=\"sgd\"\n[schedule]\nkind=\"cosine\""];
    for (data, rest) in files.iter().flat_map(|data| rests.map(|rest| (data, rest))) {
        let text = format!("[data]\n{data}\n[model]\ninput=[64]\nlayers={layers}\n{rest}\n");
        let run = everygpu::config::RunConfig::parse(&text, "run.toml", Path::new(""), &[]).expect("it can be used");
        let written = run.to_toml();
        for table in written.lines().filter(|line| line.starts_with('[')) {
            assert!(page.contains(&format!("## `{table}`")), "docs/run-file.md has no {table}");
        }
        let parts = written.lines().flat_map(|line| line.trim().trim_start_matches("{ ").split(", "));
        let keys = parts.filter_map(|part| Some(part.split_once(" = ")?.0.trim()));
        for key in keys.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || "_12".contains(c))) {
            let named = [format!("`{key}`"), format!("`{key} = ")].iter().any(|name| page.contains(name));
            assert!(named, "docs/run-file.md does not name {key}");
        }
    }
}

/// Another process that installs packages is waited for, and nothing else is.
#[cfg(unix)]
#[test]
fn the_scripts_wait_for_the_lock_of_the_package_manager() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let script = |name: &str, text: &str| {
        place.write(name, format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    script("id", "echo 0");
    let install = |apt_get: &str| {
        script("apt-get", &format!("echo \"$1\" >> calls; {apt_get}"));
        place.write("calls", "");
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup.sh");
        let mut shell = Command::new("sh");
        shell.args(["-euc", ". \"$1\"; install_packages some-package", "sh"]).arg(setup).current_dir(place.path(""));
        let path = format!("{}:{}", place.path("").display(), std::env::var("PATH").expect("there is one"));
        Ran::of(shell.env("PATH", path).env("lock_pause", "0").output().expect("sh runs"))
    };
    let held = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)";
    let ran = install(&format!("[ $(wc -l < calls) -gt 3 ] || {{ echo '{held}' >&2; exit 100; }}"));
    assert!(ran.code == Some(0) && ran.error.contains("another process holds the package manager's lock"), "{ran:#?}");
    assert_eq!(place.read("calls"), "update\n".repeat(4) + "install\n");
    let ran = install("echo 'E: Unable to locate package some-package' >&2; exit 100");
    assert!(ran.code != Some(0) && ran.error.contains("Unable to locate") && !ran.error.contains("lock"), "{ran:#?}");
    assert_eq!(place.read("calls"), "update\ninstall\n");
}
