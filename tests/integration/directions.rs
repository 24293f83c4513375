//! Which module may use which, by reading the `use crate::…` lines and paths of src/: the arrows of the architecture,
//! and no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// For each module, those that it may use beside itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("file", &["error"]),
    ("rng", &[]),
    // The list of all kernels, for tests and tools: it stands above those who have kernels, and only tools may use it.
    ("shaders", &["profile", "optim", "plan", "graph", "op", "kernel", "tensor", "error"]),
    ("tensor", &["error"]),
    ("trace", &["error"]),
    // A file format that ops write themselves into.
    ("onnx", &["tensor", "error"]),
    // What a device is asked to do: those who make kernels and those who run them meet here.
    ("kernel", &["error"]),
    ("op", &["kernel", "onnx", "tensor", "rng", "error"]),
    ("graph", &["op", "kernel", "onnx", "tensor", "error"]),
    ("nn", &["graph", "op", "kernel", "tensor", "rng", "error"]),
    ("plan", &["graph", "op", "kernel", "tensor", "error"]),
    ("optim", &["plan", "kernel", "error"]),
    ("gpu", &["plan", "optim", "kernel", "tensor", "trace", "error"]),
    ("data", &["tensor", "rng", "trace", "file", "error"]),
    ("checkpoint", &["tensor", "rng", "file", "error"]),
    ("balance", &["error"]),
    ("fleet", &["balance", "gpu", "optim", "data", "plan", "graph", "kernel", "rng", "trace", "error"]),
    ("coordinator", &["fleet", "balance", "optim", "data", "plan", "trace", "error"]),
    // Runs ops: it does not stand beside the devices, which see plans, never ops or graphs.
    ("self_test", &["gpu", "optim", "plan", "graph", "op", "kernel", "tensor", "rng", "error"]),
    (
        "train",
        &[
            "self_test",
            "coordinator",
            "fleet",
            "balance",
            "gpu",
            "optim",
            "data",
            "checkpoint",
            "nn",
            "plan",
            "graph",
            "kernel",
            "tensor",
            "rng",
            "trace",
            "error",
        ],
    ),
    (
        "predict",
        &[
            "train",
            "self_test",
            "gpu",
            "data",
            "checkpoint",
            "nn",
            "plan",
            "graph",
            "onnx",
            "kernel",
            "tensor",
            "rng",
            "error",
        ],
    ),
    // A device of its own for what measures: it does not stand in `train`, which must not know that it is measured.
    ("scratch", &["train", "gpu", "optim", "data", "checkpoint", "nn", "plan", "kernel", "rng", "error"]),
    ("profile", &["scratch", "train", "self_test", "gpu", "data", "plan", "graph", "kernel", "error"]),
    ("tune", &["scratch", "train", "self_test", "fleet", "gpu", "optim", "data", "checkpoint", "error"]),
    ("run", &["train", "checkpoint", "data", "tensor", "file", "error"]),
    ("config", &["run", "train", "nn", "data", "optim", "gpu", "checkpoint", "tensor", "file", "error"]),
    // What a program or a command needs: everything.
    ("prelude", &["*"]),
    ("cli", &["*"]),
];

/// The modules whose files use one another in one direction only, apart from `mod.rs`, which stands for the whole.
const WITHOUT_CIRCLES: &[&str] =
    &["balance", "fleet", "coordinator", "train", "predict", "run", "profile", "tune", "self_test", "config"];

/// A use of another module: the module, and what is taken from it where that is named.
type Use = (String, Option<String>);

/// The uses in a file's text: every `crate::module::item`, groups taken apart, comments left out.
fn uses(text: &str) -> Vec<Use> {
    let code: String = text.lines().map(|l| l.split("//").next().unwrap_or(l)).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for after in code.split("crate::").skip(1) {
        if let Some(list) = after.strip_prefix('{') {
            entries(list).into_iter().for_each(|entry| found.extend(items(&entry)));
        } else {
            found.extend(items(after));
        }
    }
    found
}

/// `module::item…` or `module::{item, item}` or `module`.
fn items(path: &str) -> Vec<Use> {
    let word = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let module = word(path);
    match path[module.len()..].strip_prefix("::") {
        Some(rest) if rest.starts_with('{') => {
            entries(&rest[1..]).iter().map(|entry| (module.clone(), Some(word(entry)))).collect()
        }
        Some(rest) => vec![(module, Some(word(rest)))],
        None => vec![(module, None)],
    }
}

/// The entries of a group that has been opened, up to its end.
fn entries(text: &str) -> Vec<String> {
    let (mut depth, mut list) = (0, vec![String::new()]);
    for c in text.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => list.push(String::new()),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                list.last_mut().expect("never empty").push(c);
            }
        }
    }
    list.into_iter().map(|e| e.trim().to_owned()).filter(|e| !e.is_empty()).collect()
}

/// What `module` does that it may not: module and item.
fn violations(module: &str, text: &str) -> Vec<String> {
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
        return vec![format!("the module {module} is not in the list of modules")];
    };
    // A module's tests may stand on what they like: they are the end of the file.
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let wrong = |(used, item): Use| {
        let item = item.unwrap_or_default();
        if used == module || allowed.contains(&"*") {
            return None;
        }
        (!allowed.contains(&used.as_str())).then(|| format!("{module} uses crate::{used}::{item}"))
    };
    uses(code).into_iter().filter_map(wrong).collect()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// src/train/state.rs → train; src/lib.rs and src/main.rs → none.
fn module_of(path: &Path, source: &Path) -> Option<String> {
    let path = path.strip_prefix(source).unwrap();
    let first = path.components().next().unwrap();
    let name = Path::new(first.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned();
    (!["lib", "main"].contains(&name.as_str())).then_some(name)
}

#[test]
fn modules_use_what_they_may() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for path in &files {
        let Some(module) = module_of(path, &source) else { continue };
        // Files that are tests as a whole.
        let within = path.strip_prefix(&source).unwrap();
        if path.file_stem().unwrap() == "tests" || within.components().any(|c| c.as_os_str() == "tests") {
            continue;
        }
        let found = violations(&module, &std::fs::read_to_string(path).unwrap());
        wrong.extend(found.into_iter().map(|v| format!("{}: {v}", within.display())));
        seen.insert(module);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen, MAY_USE.iter().map(|(module, _)| (*module).to_owned()).collect());
}

/// The files that a file's text uses among its neighbours `names`: what stands behind `super::`.
fn neighbours(text: &str, names: &[String]) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let behind = code.split("super::").skip(1).flat_map(|after| match after.strip_prefix('{') {
        Some(list) => entries(list),
        None => vec![after.to_owned()],
    });
    let first = |path: String| path.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    behind.filter_map(first).filter(|name| names.contains(name)).collect()
}

/// A file that uses itself by way of others, of files with what they use.
fn circle(uses: &[(String, BTreeSet<String>)]) -> Option<String> {
    let mut left: Vec<_> = uses.to_vec();
    loop {
        // What uses nothing that is left is in no circle.
        let names: BTreeSet<String> = left.iter().map(|(name, _)| name.clone()).collect();
        let before = left.len();
        left.retain(|(_, used)| used.iter().any(|name| names.contains(name)));
        if left.len() == before {
            return left.first().map(|(name, used)| format!("{name} uses {used:?}"));
        }
    }
}

#[test]
fn files_use_one_another_in_one_direction() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for module in WITHOUT_CIRCLES {
        let mut files = Vec::new();
        rust_files(&source.join(module), &mut files);
        files.retain(|path| path.parent().unwrap() == source.join(module) && path.file_stem().unwrap() != "mod");
        let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let names: Vec<String> = files.iter().map(name).collect();
        let used = |path: &PathBuf| neighbours(&std::fs::read_to_string(path).unwrap(), &names);
        let uses: Vec<_> = files.iter().map(|path| (name(path), used(path))).collect();
        seen += uses.iter().map(|(_, used)| used.len()).sum::<usize>();
        assert_eq!(circle(&uses), None, "{module}");
    }
    assert!(seen >= 30, "{seen}");
}

#[test]
fn a_circle_of_files_is_seen() {
    let names = ["a", "b", "c"].map(str::to_owned);
    let uses = |texts: [&str; 3]| -> Vec<_> {
        names.iter().cloned().zip(texts.map(|text| neighbours(text, &names))).collect()
    };
    assert_eq!(circle(&uses(["use super::{b::X, c};", "use super::c::Y;", "use super::Whole;"])), None);
    assert!(circle(&uses(["use super::b::X;", "use super::c::Y;", "let z = super::a::Z;"])).is_some());
}

/// wgpu is named in gpu/ alone.
#[test]
fn only_gpu_names_wgpu() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let names_it = |path: &&PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().any(|l| l.split("//").next().unwrap_or(l).contains("wgpu::"))
    };
    let (inside, outside): (Vec<_>, Vec<_>) =
        files.iter().filter(names_it).partition(|p| module_of(p, &source).as_deref() == Some("gpu"));
    assert!(outside.is_empty(), "{outside:?}");
    assert!(!inside.is_empty());
}

#[test]
fn a_wrong_direction_is_seen() {
    let one = |module, text| violations(module, text);
    assert_eq!(one("gpu", "use crate::graph::Graph;"), ["gpu uses crate::graph::Graph"]);
    assert_eq!(one("gpu", "use crate::op::Op;"), ["gpu uses crate::op::Op"]);
    assert_eq!(one("op", "use crate::{error::Result, plan::{Buffer, Plan}};").len(), 2);
    assert_eq!(one("data", "let t = crate::train::Tally::default();"), ["data uses crate::train::Tally"]);
    assert_eq!(one("optim", "use crate::nn;"), ["optim uses crate::nn::"]);
    assert_eq!(one("unknown", "").len(), 1);
    assert!(
        one("gpu", "use crate::kernel::{Access, Kernel};\nuse crate::plan::Plan; // not crate::graph::Graph")
            .is_empty()
    );
    assert!(one("data", "#[cfg(test)]\nmod tests {\n use crate::train::Tally;").is_empty());
}
