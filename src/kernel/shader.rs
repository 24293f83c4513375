//! Shader sources and their expansion. The preprocessor knows these directives, each on a line of its own:
//!
//! ```text
//! #import NAME          the shared piece shaders/shared/NAME.wgsl, once
//! #ifdef NAME           … #else … #endif, nestable
//! #repeat NAME COUNT    … #end, nestable: the lines between, COUNT times, with 0, 1, … in place of {NAME}
//! ```
//!
//! COUNT is a number, or the name of one of the kernel's constants. Repeated lines are for values that a compiler has
//! to keep apart, in registers: it does not unroll every loop that could be.
//!
//! Constants go in front as WGSL `const` declarations, so a kernel's loop bounds are known to the driver's compiler,
//! and then the uniform `sizes`, where there are any.

use std::collections::HashSet;
use std::fmt::Write;

use super::{Constant, Kernel};

/// A WGSL source.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shader {
    /// File stem.
    pub name: &'static str,
    /// Contents.
    pub source: &'static str,
    audited: bool,
}

impl Shader {
    /// A shader of an op outside this crate. It is compiled with all that WebGPU promises: workgroup memory starts as
    /// zeros, and a guard ends endless loops. Both cost speed.
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, audited: false }
    }

    /// A shader of this crate, which is known to write workgroup memory before it reads it, and whose loops count.
    pub(crate) const fn audited(name: &'static str, source: &'static str) -> Self {
        Self { name, source, audited: true }
    }

    /// Whether it is one of this crate, which can do without some of WebGPU's guards.
    pub fn is_audited(&self) -> bool {
        self.audited
    }
}

impl std::fmt::Debug for Shader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.wgsl", self.name)
    }
}

/// The [`Shader`] `shaders/NAME.wgsl` of this crate, as seen from a module two folders below its root.
macro_rules! shader {
    ($name:literal) => {
        $crate::kernel::Shader::audited($name, include_str!(concat!("../../shaders/", $name, ".wgsl")))
    };
}
pub(crate) use shader;

macro_rules! shared {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../shaders/shared/", $name, ".wgsl")))),*]
    };
}

/// The pieces that `#import` finds.
const SHARED: &[(&str, &str)] = shared![
    "activation",
    "add",
    "attention",
    "attention_grad",
    "attention_keys",
    "attention_walk",
    "batch_norm",
    "broadcast",
    "class_target",
    "conv2d",
    "elementwise",
    "lamb",
    "linear",
    "matmul",
    "nan",
    "norm",
    "parameter",
    "pool",
    "power",
    "resample",
    "rows",
    "softmax",
    "squares",
    "step",
    "threefry",
    "update",
    "workgroups"
];

/// The WGSL text of a kernel.
///
/// A directive that cannot be followed (an unknown import, an `#else` without `#ifdef`) stays in the text, where the
/// device's compiler reports it with its line.
pub(super) fn expand(kernel: &Kernel) -> String {
    let mut out = String::new();
    for (name, value) in &kernel.constants {
        match value {
            Constant::U32(v) => writeln!(out, "const {name}: u32 = {v}u;"),
            Constant::F32(v) => writeln!(out, "const {name}: f32 = {v:?}f;"),
        }
        .expect("writing to a string");
    }
    if !kernel.sizes.is_empty() {
        let members: Vec<_> = kernel.sizes.iter().map(|(name, _)| format!("{name}: u32")).collect();
        let binding = kernel.bindings.len();
        writeln!(out, "struct Sizes {{ {} }}", members.join(", ")).expect("writing to a string");
        writeln!(out, "@group(0) @binding({binding}) var<uniform> sizes: Sizes;").expect("writing to a string");
    }
    let mut expansion = Expansion { kernel, imported: HashSet::new(), out };
    expansion.source(kernel.shader.source);
    expansion.out
}

struct Expansion<'a> {
    kernel: &'a Kernel,
    imported: HashSet<&'static str>,
    out: String,
}

impl Expansion<'_> {
    fn source(&mut self, source: &str) {
        // One entry a nested condition: whether its current branch is taken.
        let mut branches: Vec<bool> = Vec::new();
        let mut lines = source.lines();
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["#ifdef", name, ..] => branches.push(self.kernel.defines.contains(&name)),
                ["#else"] if !branches.is_empty() => {
                    let last = branches.len() - 1;
                    branches[last] = !branches[last];
                }
                ["#endif"] if !branches.is_empty() => {
                    branches.pop();
                }
                _ if branches.contains(&false) => {}
                ["#import", name, ..] if SHARED.iter().any(|(known, _)| *known == name) => {
                    for (name, piece) in SHARED.iter().filter(|(known, _)| *known == name) {
                        if self.imported.insert(name) {
                            self.source(piece);
                        }
                    }
                }
                ["#repeat", name, count] if self.number(count).is_some() => {
                    let body = repeated(&mut lines);
                    for round in 0..self.number(count).unwrap_or(0) {
                        self.source(&body.replace(&format!("{{{name}}}"), &round.to_string()));
                    }
                }
                _ => {
                    self.out.push_str(line);
                    self.out.push('\n');
                }
            }
        }
        if !branches.is_empty() {
            self.out.push_str("#endif is missing\n");
        }
    }

    /// What `count` says: a number, or a constant's value.
    fn number(&self, count: &str) -> Option<u32> {
        count.parse().ok().or_else(|| {
            self.kernel.constants.iter().find_map(|(name, value)| match value {
                Constant::U32(value) if *name == count => Some(*value),
                _ => None,
            })
        })
    }
}

/// The lines up to the `#end` of the repetition whose first line has been read.
fn repeated(lines: &mut std::str::Lines<'_>) -> String {
    let mut body = String::new();
    let mut open = 1;
    for line in lines {
        match line.split_whitespace().next() {
            Some("#repeat") => open += 1,
            Some("#end") => open -= 1,
            _ => {}
        }
        if open == 0 {
            return body;
        }
        body.push_str(line);
        body.push('\n');
    }
    body + "#end is missing\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Access;

    fn expanded(source: &'static str, defines: &[&'static str]) -> String {
        let mut kernel = Kernel::linear(Shader::new("test", source), 64);
        kernel.defines = defines.to_vec();
        kernel.source()
    }

    #[test]
    fn conditions_nest() {
        let source = "#ifdef A\na\n#ifdef B\nab\n#else\na-b\n#endif\n#else\n-a\n#endif\nend";
        let body = |defines| expanded(source, defines).lines().skip(1).collect::<Vec<_>>().join(" ");
        assert_eq!(body(&["A", "B"]), "a ab end");
        assert_eq!(body(&["A"]), "a a-b end");
        assert_eq!(body(&["B"]), "-a end");
    }

    #[test]
    fn directives_that_cannot_be_followed_are_left_to_the_compiler() {
        for source in
            ["#import nothing", "#else", "#endif", "#include x", "#ifdef A\n#endif\n#endif", "#end", "#repeat i N"]
        {
            assert!(expanded(source, &["A"]).ends_with(&format!("{}\n", source.lines().last().unwrap())), "{source}");
        }
        assert!(expanded("#ifdef A\n", &["A"]).ends_with("#endif is missing\n"));
        assert!(expanded("#repeat i 1\n", &[]).ends_with("#end is missing\n"));
    }

    #[test]
    fn repetitions_count_and_nest() {
        let text = expanded(
            "#repeat i 2\na{i}\n#ifdef B\n#repeat j WG\n#end\n#endif\n#repeat j 3\n{i}{j}\n#end\n#end\nend",
            &[],
        );
        let body: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(body.join(" "), "a0 00 01 02 a1 10 11 12 end");
        assert_eq!(expanded("#repeat i WG\nx\n#end", &[]).matches('x').count(), 64);
    }

    #[test]
    fn imports_come_once() {
        let text = expanded("#import threefry\n#import threefry\n", &[]);
        assert_eq!(text.matches("fn threefry2x32").count(), 1);
    }

    #[test]
    fn constants_keep_their_bits() {
        let kernel = Kernel::linear(Shader::new("test", ""), 64).constant("P", 0.1_f32).constant("E", 1e-8_f32);
        assert_eq!(kernel.source(), "const WG: u32 = 64u;\nconst P: f32 = 0.1f;\nconst E: f32 = 1e-8f;\n");
    }

    #[test]
    fn the_source_has_the_names_of_sizes_and_not_their_values() {
        let kernel = |rows| {
            let kernel = Kernel::linear(Shader::new("test", ""), 64).size("rows", rows).size("count", 9);
            Kernel { bindings: vec![Access::Read; 2], ..kernel }
        };
        let lines = "struct Sizes { rows: u32, count: u32 }\n@group(0) @binding(2) var<uniform> sizes: Sizes;\n";
        assert_eq!(kernel(5).source(), format!("const WG: u32 = 64u;\n{lines}"));
        assert_eq!(kernel(5).source(), kernel(7).source());
    }
}
