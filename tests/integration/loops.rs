//! Every loop of the crate's kernels ends, which the device must know to compile them without wgpu's guard against
//! endless loops (which costs up to a factor of six). What it goes by is tried here on loops that do not end, or are
//! not known to.

use everygpu::gpu::check_loops;
use everygpu::kernel::{Target, Tiling};
use everygpu::shaders::all_kernels;

#[test]
fn every_loop_of_every_kernel_counts_towards_a_bound() {
    for tiling in [Tiling::Registers, Tiling::Workgroup] {
        for kernel in all_kernels(&Target { tiling, ..Target::default() }).expect("every example lowers") {
            assert!(kernel.shader.is_audited());
            let found = check_loops(&kernel.source());
            assert_eq!(found, Ok(()), "{}:\n{}", kernel.label(), kernel.source());
        }
    }
}

/// A kernel of `body`, in which `n` and `m` are read from memory, `at_most_8` is what it says, and `valid` is the
/// step's rows.
fn kernel(body: &str) -> String {
    format!(
        "const ZERO: u32 = 0u; const TWO: u32 = 2u; const LARGE: u32 = 0xffffffffu;
        struct Step {{ seed: vec2<u32>, step: u32, first_row: u32, valid: u32 }}
        struct Sizes {{ rows: u32 }}
        @group(0) @binding(1) var<uniform> sizes: Sizes;
        @group(1) @binding(0) var<uniform> step: Step;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        fn change(i: ptr<function, u32>) {{ *i = 0u; }}
        fn limited(x: u32) -> u32 {{ if x == 7u {{ return 1u; }} return min(x, 8u); }}
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let n = y[0]; let m = y[1]; let at_most_8 = limited(n); let valid = step.valid;
            {body}
        }}"
    )
}

#[test]
fn loops_that_may_not_end_are_refused() {
    let refused = [
        ("no bound", "loop { }"),
        ("a condition of its own", "while y[0] < 3u { }"),
        ("no condition", "for (var i = 0u; ; i += 1u) { }"),
        ("a condition that is always met", "for (var i = 0u; true; i += 1u) { }"),
        ("an advance in the body", "for (var i = 0u; i < n; ) { i += 1u; }"),
        ("no advance", "for (var i = 0u; i < n; ) { }"),
        ("an advance of another variable", "var j = 0u; for (var i = 0u; i < n; j += 1u) { }"),
        (
            "an advance that may be left out",
            "var i = 0u; loop { if i < n { } else { break; } if m > 3u { continue; } i += 1u; }",
        ),
        ("a step of 0", "for (var i = 0u; i < n; i += 0u) { }"),
        ("a step constant of 0", "for (var i = 0u; i < 9u; i += ZERO) { }"),
        ("a step constant of 0 times 2", "for (var i = 0u; i < 9u; i += TWO * ZERO) { }"),
        ("a step that is read", "for (var i = 0u; i < 9u; i += m) { }"),
        ("an assignment instead of a step", "for (var i = 0u; i < 9u; i = 3u) { }"),
        ("an advance from an earlier value", "var i = 0u; let old = i; for (; i < 9u; i = old + 1u) { }"),
        ("the wrong direction", "for (var i = 0u; i < n; i -= 1u) { }"),
        ("the wrong direction, downwards", "for (var i = 9u; i > 0u; i += 1u) { }"),
        ("halves upwards", "for (var i = 9u; i < 10u; i /= 2u) { }"),
        ("a comparison the wrong way round", "for (var i = 0u; n > 3u; i += 1u) { }"),
        ("a product that stays 0", "for (var i = 0u; i < n; i *= 2u) { }"),
        ("a division by 1", "for (var i = 9u; i > 0u; i /= 1u) { }"),
        ("a division by 0", "for (var i = 9u; i > 0u; i /= ZERO) { }"),
        ("a shift by 0", "for (var i = 9u; i > 0u; i >>= ZERO) { }"),
        ("a bound that all u32 are within", "for (var i = 0u; i <= LARGE; i += 1u) { }"),
        ("a wrap", "for (var i = 0u; i < n; i += 2u) { }"),
        ("a wrap by a large step", "for (var i = 0u; i < 9u; i += LARGE) { }"),
        ("a wrap by a constant bound", "for (var i = 0u; i < LARGE; i += TWO) { }"),
        ("a wrap below 0", "for (var i = 9u; i > 0u; i -= 2u) { }"),
        ("a wrap of the bound itself", "for (var i = 0u; i < at_most_8 - 9u; i += 2u) { }"),
        ("a wrap of the bound's sum", "for (var i = 0u; i < max(valid, n) + 1u; i += 4u) { }"),
        ("a step that is a size", "for (var i = 0u; i < 9u; i += sizes.rows) { }"),
        ("a bound that is a size, times 4", "for (var i = 0u; i < 4u * sizes.rows; i += 2u) { }"),
        ("another field of the uniform", "for (var i = 0u; i < step.first_row; i += 2u) { }"),
        ("a bound that is the uniform's, times 4", "for (var i = 0u; i < 4u * valid; i += 2u) { }"),
        ("a counter changed in the body", "for (var i = 0u; i < n; i += 1u) { i = 0u; }"),
        (
            "a counter changed in a branch",
            "for (var i = 0u; i < n; i += 1u) { if m > 1u { switch m { case 2u: { i -= 1u; } default: { } } } }",
        ),
        ("a counter changed in a loop in it", "for (var i = 0u; i < n; i += 1u) { for (i = 0u; i < 3u; i += 1u) { } }"),
        ("a counter changed by pointer", "for (var i = 0u; i < n; i += 1u) { let p = &i; *p = 0u; }"),
        ("a counter handed to a function", "for (var i = 0u; i < n; i += 1u) { change(&i); }"),
        ("a counter of another kind", "for (var i = 0i; i < 9i; i += 1i) { }"),
        ("a counter that others may change", "for (y[2] = 0u; y[2] < n; y[2] += 1u) { }"),
        ("a changing distance", "for (var i = 0u; i + y[0] < 9u; i += 1u) { }"),
        ("in a loop that ends", "for (var i = 0u; i < n; i += 1u) { while true { } }"),
    ];
    for (what, body) in refused {
        let fault = check_loops(&kernel(body)).expect_err(what);
        assert!(fault.starts_with("a loop in main "), "{what}: {fault}");
    }
    let in_function = kernel("").replace("{ *i = 0u; }", "{ for (; *i < 3u; *i += 0u) { } }");
    assert!(check_loops(&in_function).expect_err("a loop in a function").starts_with("a loop in change "));
    assert!(check_loops("for").is_err());
}

#[test]
fn loops_that_end_are_known() {
    for body in [
        "for (var i = 0u; i < n; i += 1u) { y[i] += i; if m > 2u { continue; } }",
        "for (var i = n; i < m; i++) { }",
        "for (var i = n; i < at_most_8; i += TWO) { }",
        "for (var i = id.x; i < min(n, 1000u) * 4u; i += 64u) { }",
        "for (var i = 0u; i < valid; i += 1u << 20u) { }",
        "for (var i = 0u; i < 2u * valid + 5u; i += 4u) { }",
        "for (var i = 0u; i < select(0u, 9u, n > m); i += clamp(m, 1u, 3u)) { }",
        "for (var i = id.x; i < sizes.rows; i += 64u) { }",
        "for (var i = 0u; i < sizes.rows; i += max(sizes.rows, 1u)) { }",
        "for (var half = 64u; half > 0u; half /= 2u) { }",
        "for (var half = 64u; half > 0u; half >>= 1u) { }",
        "for (var i = n; i > 3u; i -= 2u) { }",
        "var i = 0u; for (; i + 3u < at_most_8; i += 4u) { } for (; i < at_most_8; i += 1u) { }",
        "var end = n; for (var i = 0u; i < end; i += 1u) { end += 1u; }",
    ] {
        assert_eq!(check_loops(&kernel(body)), Ok(()), "{body}");
    }
}
