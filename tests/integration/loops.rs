//! Every loop of the crate's shaders ends. The device compiles them without wgpu's guard against endless loops (which costs
//! up to a factor of six), so this is read off the sources: only `for`, only towards a bound, and neither the bound nor the
//! counter is changed in the body.

use std::fs;
use std::path::{Path, PathBuf};

fn shaders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the shaders' folder").map(|e| e.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { shaders(&path) } else { vec![path] }).collect()
}

fn without_comments(source: &str) -> String {
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

/// Whether `text` assigns to `name`.
fn assigns(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].trim_start();
        let whole = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.');
        let operators = ["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", "<<=", ">>="];
        whole
            && (operators.iter().any(|o| after.starts_with(o)) || (after.starts_with('=') && !after.starts_with("==")))
    })
}

/// What is wrong with the loops of `source`.
fn faults(source: &str) -> Vec<String> {
    let source = without_comments(source);
    let mut faults: Vec<String> =
        words(&source).filter(|w| ["while", "loop"].contains(w)).map(|w| format!("uses '{w}'")).collect();
    for (at, _) in source.match_indices("for (") {
        let rest = &source[at + 5..];
        let open = rest.find('{').expect("a body");
        let head = rest[..open].trim_end().trim_end_matches(')');
        let [_, condition, advance] = head.splitn(3, ';').map(str::trim).collect::<Vec<_>>()[..] else {
            faults.push(format!("'for ({head})' has not three parts"));
            continue;
        };
        let mut depth = 0;
        let end = rest[open..].char_indices().find_map(|(i, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (depth == 0).then_some(open + i)
        });
        let body = &rest[open..end.expect("balanced braces")];
        let counter = words(advance).next().unwrap_or_default();
        let advances = ["+=", "-=", "*=", "/=", ">>="].iter().any(|o| advance.contains(o));
        let compares = condition.contains('<') || condition.contains('>');
        if !advances || !compares || !words(condition).any(|w| w == counter) {
            faults.push(format!("'for ({head})' does not count towards a bound"));
        }
        for name in words(condition).filter(|w| w.starts_with(|c: char| c.is_alphabetic())) {
            if assigns(body, name) {
                faults.push(format!("'for ({head})' changes '{name}' in its body"));
            }
        }
    }
    faults
}

#[test]
fn every_loop_counts_towards_a_bound() {
    let files = shaders(&Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders"));
    assert!(files.len() > 10);
    for file in files {
        let source = fs::read_to_string(&file).expect("a shader");
        assert_eq!(faults(&source), Vec::<String>::new(), "{}", file.display());
    }
}

#[test]
fn endless_loops_are_found() {
    assert!(!faults("loop { }").is_empty());
    assert!(!faults("while x < 3u { }").is_empty());
    assert!(!faults("for (var i = 0u; i < n; ) { i += 1u; }").is_empty());
    assert!(!faults("for (var i = 0u; i < n; i += 1u) { i = 0u; }").is_empty());
    assert!(!faults("for (var i = 0u; i < n; i += 1u) { if a { n += 1u; } }").is_empty());
    assert!(!faults("for (var i = 0u; true; i += 1u) { }").is_empty());
    assert!(faults("for (var i = 0u; i < n; i += 1u) { sum[i] += x; }").is_empty());
}
