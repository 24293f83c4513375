//! Run files, tables and weights by someone who means no good, or whose editor broke: told at once, in one line that a
//! terminal shows as it is, and with little memory.

use everygpu::checkpoint::write_tensors;
use everygpu::tensor::{HostTensor, Named};

use super::*;

const LINEAR: &str = "{ kind = \"linear\", out = 2 }";

/// `everygpu plan` of a run file, with 1 GiB of memory and ten seconds of a processor.
fn plan(place: &Place, text: &str, settings: &[&str]) -> Ran {
    place.write("h.toml", text);
    let mut command = match cfg!(unix) {
        true => {
            let mut shell = Command::new("sh");
            let limited = "ulimit -v 1048576 2>/dev/null; ulimit -t 10; exec \"$@\"";
            shell.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_everygpu")]).current_dir(place.path(""));
            shell
        }
        false => place.program(&[]),
    };
    Ran::of(command.env_remove("RUST_LOG").args(["plan", "h.toml"]).args(settings).output().expect("the binary runs"))
}

/// A model of these layers on the built-in digits, and what else is in the run file.
fn model(layers: &str, rest: &str) -> String {
    format!("[model]\nlayers = [\"flatten\", {layers}, {{ kind = \"linear\", out = 10 }}]\n{rest}")
}

#[test]
fn a_small_run_file_cannot_take_all_memory_or_time() {
    let place = Place::new();
    let double = |i: usize| {
        let with = "with = { x = [\"$x\", \"$x\"] }";
        format!("[model.blocks.b{i}]\nlayers = [{{ kind = \"block\", use = \"b{}\", {with} }}]\n", i + 1)
    };
    let doubling = |levels: usize| {
        let last = format!("[model.blocks.b{levels}]\nlayers = [{{ kind = \"reshape\", shape = \"$x\" }}]\n");
        let blocks = (0..levels).map(double).collect::<String>() + &last;
        model("{ kind = \"block\", use = \"b0\", with = { x = [1] } }", &blocks)
    };
    let chain = |levels: usize| {
        doubling(levels)
            .replace(", with = { x = [\"$x\", \"$x\"] }", "")
            .replace(", with = { x = [1] }", "")
            .replace("\"$x\"", "[1]")
    };
    let keys = |of: &dyn Fn(usize) -> String| (0..60_000).map(of).collect::<String>();
    let repeat = |inner: &str| format!("{{ kind = \"repeat\", times = 1000, layers = [{inner}] }}");
    let much = format!("[model.blocks.b]\nlayers = [\"relu\"]\ndefaults = {{ x = [{}1] }}\n", "1, ".repeat(100_000));
    let names = vec!["{ kind = \"block\", use = \"b\" }"; 9000].join(", ");
    let long =
        format!("[model.blocks.b]\nlayers = [{{ kind = \"linear\", out = 9, name = \"{}\" }}]\n", "n".repeat(90_000));
    let groups = keys(&|_| "[[optimizer.groups]]\nmatch = \"*\"\n".to_owned());
    let stars = format!("[[optimizer.groups]]\nmatch = \"{}z\"\n", "*i".repeat(20));
    for (text, parts) in [
        (doubling(28), &["h.toml:", "blocks written out are beyond 500000 values"][..]),
        (chain(40), &["h.toml:", "layers nest deeper than 32"]),
        (
            model(&names, &much.replace("\"relu\"", "{ kind = \"reshape\", shape = \"$x\" }")),
            &["at most 16 dimensions"],
        ),
        (model(&names, &long), &["beyond 500000 values"]),
        (model(&vec![repeat("\"relu\""); 20].join(", "), ""), &["at most 10000 layers in all, got 20002"]),
        (
            model(&repeat("{ kind = \"lstm\", hidden = 4, layers = 100 }"), ""),
            &["at most 10000 layers in all, got 100000"],
        ),
        (
            format!("{}[train]\n{}", model(LINEAR, ""), keys(&|i| format!("k{i} = 1\n"))),
            &["h.toml:4: unknown key 'train.k0'"],
        ),
        (format!("{}{groups}", model(LINEAR, "")), &["optimizer.groups: expected at most 1000 groups"]),
        (
            model(
                "{ kind = \"linear\", out = 2, name = \"iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii\" }",
                &stars,
            ),
            &["h.toml:4: optimizer.groups[1].match: ", "matches no parameter"],
        ),
        (
            model(&format!("{{ kind = \"reshape\", shape = [{}] }}", vec!["1"; 5000].join(",")), ""),
            &["at most 16 dimensions"],
        ),
        (
            model(&format!("{{ kind = \"linear\", out = 2, name = \"{}\" }}", "n".repeat(5000)), ""),
            &["expected at most 1024"],
        ),
        (
            format!("[data]\npadding = 1000\n{}", model(LINEAR, "")),
            &["h.toml:2: ", "data.padding: ", "27.0 GiB; expected at most 512 MiB"],
        ),
        ("#".repeat(3 << 20), &["h.toml: it holds more than 2097152 bytes, far more than a run file needs"]),
    ] {
        plan(&place, &text, &[]).failed(parts);
    }
    // Sizes whose products are beyond 64 bits.
    let huge = 1_u64 << 62;
    let csv = |input: &str, layer: &str| {
        let data = format!("[data]\nformat = \"csv\"\npath = \"none\"\n[model]\ninput = [{input}]\n");
        format!("{data}layers = [{{ {layer} }}, \"flatten\", {LINEAR}]\n")
    };
    let square = format!("kernel = [{0}, {0}], padding = [{1}, {1}]", 1_u64 << 40, 1_u64 << 61);
    for (text, part) in [
        (csv("8, 4", &format!("kind = \"lstm\", hidden = {huge}")), "layer 1 (lstm): "),
        (csv("1, 8, 8", &format!("kind = \"conv2d\", out = 1, {square}")), "layer 1 (conv2d): "),
        (
            csv(&format!("8, {huge}"), &format!("kind = \"conv1d\", out = 4, kernel = {huge}")),
            "samples of at most 4294967295",
        ),
        (csv(&format!("{huge}, {huge}, 4"), "kind = \"max_pool2d\", kernel = 2"), "samples of at most 4294967295"),
    ] {
        let ran = plan(&place, &text, &[]);
        let panics = ran.error.contains("panicked");
        assert!(ran.code == Some(1) && !panics && ran.error.contains(part), "{ran:#?}");
    }
    // Windows passes on 32,767 characters.
    let parts = if cfg!(windows) { 15_000 } else { 30_000 };
    let deep = format!("{}=1", vec!["a"; parts].join("."));
    plan(&place, &model(LINEAR, ""), &["--set", &deep]).failed(&["expected a key of at most 64 parts"]);
    if cfg!(unix) {
        place.run(&["plan", "/dev/zero"]).failed(&["/dev/zero: expected a regular file, got a pipe or a device"]);
    }
}

/// What is large and can be planned is planned.
#[test]
fn ten_thousand_layers_have_a_plan() {
    let place = Place::new();
    let residual = format!("{{ kind = \"residual\", layers = [{}] }}", LINEAR.replace('2', "64"));
    let rounds = format!(
        "{{ kind = \"repeat\", times = 9, layers = [{{ kind = \"repeat\", times = 1000, layers = [{residual}] }}] }}"
    );
    let ran = plan(&place, &model(&rounds, ""), &[]).well();
    assert!(ran.out.contains("repeat_1.9.repeat_1.1000.residual_1.linear_1.weight [64, 64]"));
    let images = Place::new();
    plan(&images, &format!("[data]\npadding = 108\n{}", model(LINEAR, "")), &[]).well();
}

/// No character of `ran` controls a terminal, and none of its lines is endless.
#[track_caller]
fn shows_nothing_but_text(ran: &Ran) {
    for text in [&ran.out, &ran.error] {
        let found = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(found, None, "{ran:#?}");
        assert!(text.lines().all(|line| line.len() < 9000), "{}", text.len());
    }
}

#[test]
fn names_and_values_from_files_do_not_control_the_terminal() {
    let red = "k\\u001b[31m\\u009b\\u202e\\u0007";
    let told = "k\\u{1b}[31m\\u{9b}\\u{202e}\\u{7}";
    let place = Place::with_table(TABLE);
    let good = place.read("t.toml");
    for (text, part) in [
        (format!("{good}\"{red}\" = 1\n"), told),
        (good.replace("batch = 2", &format!("batch = \"{red}\"")), "k\\u001B[31m\\u{9b}\\u{202e}\\u0007"),
        (good.replace("out = 2", &format!("out = 3, name = \"{red}\"")), told),
        (good.replace("t.csv", &format!("{red}.csv")), "\\u{1b}[31m"),
        (format!("{good}[[optimizer.groups]]\nmatch = \"{red}\"\n"), told),
        (format!("{good}split = \"{}\"\n", "x".repeat(1 << 20)), " bytes left out) … xxx"),
        (format!("{good}\"{}\" = 1\n", "x".repeat(1 << 20)), " bytes left out) … "),
    ] {
        place.write("h.toml", text);
        let ran = place.run(&["train", "h.toml"]);
        ran.failed(&[part]);
        shows_nothing_but_text(&ran);
    }
    // The plan lists the layers' names.
    place.write("h.toml", good.replace("out = 2", &format!("out = 2, name = \"{red}\"")));
    let ran = place.run(&["plan", "h.toml"]).well();
    assert!(ran.out.contains(&format!("{told}.weight")), "{}", ran.out);
    shows_nothing_but_text(&ran);

    place.write("t.csv", "x,y\u{1b}[31m,kind\n1,2,a\n3,four\u{1b}c,b\n");
    let ran = place.train(&[]);
    ran.failed(&["y\\u{1b}[31m"]);
    shows_nothing_but_text(&ran);
    let ran = place.run(&["plan", "none\u{1b}[31m.toml"]);
    ran.failed(&["none\\u{1b}[31m.toml: "]);
    shows_nothing_but_text(&ran);

    place.write("t.csv", TABLE);
    let names = ["\u{1b}[2Ja", "linear_1.bias\u{9b}"];
    let tensors = names.map(|name| (name, HostTensor::f32([1], vec![1.0]).expect("one element")));
    write_tensors(place.path("w.safetensors"), &Named::of(tensors).expect("two names"), &[]).expect("writable");
    let ran = place.run(&["train", "t.toml", "--init", "w.safetensors"]);
    ran.failed(&["extra: \\u{1b}[2Ja [1]"]);
    shows_nothing_but_text(&ran);
    place.has_no_run();
}

/// What goes to a file or another program is the data as it is.
#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let table: String = (0..1500).map(|i| format!("{i},2,{}\n", ["a\u{1b}[1m", "b"][i % 2])).collect();
    let place = Place::with_table(&format!("x,y,kind\n{table}"));
    place.train(&["train.epochs=1", "train.batch=500"]).well();
    let predict = ["predict", "runs/t-1", "--input", "t.csv"];
    assert!(place.run(&predict).well().out.starts_with("class,a\u{1b}[1m,b\n"));
    for arguments in [&predict[..], &[&predict[..], &["--format", "jsonl"]].concat(), &["plan", "t.toml"]] {
        let mut program = place.program(arguments);
        program.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = program.spawn().expect("the binary runs");
        drop(child.stdout.take());
        Ran::of(child.wait_with_output().expect("it ends")).well();
    }
}
