#!/bin/sh
# Every check this repository has, on software adapters: no GPU needed. Installs what is missing (rustfmt and clippy,
# Mesa's lavapipe, on Debian Chromium for its SwiftShader driver and its WGSL compiler, and onnxruntime for exported models
# in a virtual environment of its own), then runs format, lints, docs, benchmarks as tests, shaders through the other WGSL
# compiler, a few seconds of each attack on the program, and last the tests. Exit 0 if all passed.
#
# usage: test.sh [--quick]
#
# --quick is for work at the desk: format and most tests, on one Vulkan driver. It says what it leaves out.
#
# Both Vulkan drivers are loaded into every test process, so that mixed adapters are tested. To test others, set
# VK_DRIVER_FILES (a list of driver manifests) yourself.
set -eu
quick=
case "$*" in
    '') ;;
    --quick) quick=yes ;;
    *)
        echo "usage: $0 [--quick]" >&2
        exit 2
        ;;
esac
cd -- "$(dirname -- "$0")"
script='test'
. scripts/setup.sh

# First of the files that exists; empty if none does.
first_of() {
    for file in "$@"; do
        if [ -e "$file" ]; then
            echo "$file"
            return
        fi
    done
}

lavapipe() {
    first_of "/usr/share/vulkan/icd.d/lvp_icd.$(uname -m).json" /usr/share/vulkan/icd.d/lvp_icd*.json
}

swiftshader() {
    first_of /usr/lib/chromium/vk_swiftshader_icd.json /usr/lib64/chromium-browser/vk_swiftshader_icd.json \
        /usr/lib64/chromium/vk_swiftshader_icd.json
}

find_chromium() {
    command -v "${CHROMIUM:-chromium}" || command -v chromium-browser || command -v google-chrome
}

missing() { say "NOT TESTED: $*"; }

start=$(date +%s)
ensure_rust
for component in rustfmt clippy; do
    tool=cargo-fmt
    [ "$component" = rustfmt ] || tool=cargo-clippy
    # rustup has a proxy for every tool: only running it tells.
    if ! "$tool" --version >/dev/null 2>&1; then
        if have rustup; then
            rustup component add "$component"
        else
            case $(package_manager)-$component in
                apt-get-clippy | apk-clippy) install_packages rust-clippy ;;
                *) install_packages "$component" ;;
            esac
        fi || die "could not install $component"
    fi
done

ensure_adapter
if [ "$(uname -s)" = Linux ]; then
    if [ -z "$(lavapipe)" ]; then
        install_lavapipe || missing "lavapipe: Mesa's software Vulkan driver could not be installed"
    fi
    if [ -z "$quick$(swiftshader)" ] && [ "$(package_manager)" = apt-get ]; then
        # Ubuntu has Chromium only as a snap, which keeps its driver to itself.
        install_packages chromium || say "Chromium could not be installed from this system's packages"
    fi
    if [ -z "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ]; then
        [ -n "$quick$(swiftshader)" ] || missing "SwiftShader (it comes with Debian's chromium): no mixed-adapter tests"
        second=$(swiftshader)
        [ -z "$quick" ] || second=
        drivers=$(printf '%s\n' "$(lavapipe)" "$second" | sed '/^$/d' | paste -sd : -)
        # The second name is for Vulkan loaders before 1.3.207.
        [ -z "$drivers" ] || export VK_DRIVER_FILES="$drivers" VK_ICD_FILENAMES="$drivers"
    fi
    say "Vulkan drivers: $(vulkan_drivers | paste -sd ' ' -)"
fi
if [ -z "$quick" ]; then
    have python3 || install_packages python3 ||
        die "could not install python3, which scripts/tint.py and scripts/attack need"
    # Where the integration tests look for it.
    ensure_onnx target/python ||
        missing "ONNX models in onnxruntime: onnx and onnxruntime could not be installed from PyPI"
fi

# Lines of the table of steps.
steps=

# Notes that a step took from $2 (seconds of the clock) until now.
took() {
    steps="$steps$(printf '%7d s  %s' "$(($(date +%s) - $2))" "$1")
"
}

# Runs one step, timed; the first failure ends the script.
step() {
    title=$1
    shift
    say "== $title"
    begin=$(date +%s)
    "$@" || die "FAILED: $title ($*)"
    took "$title" "$begin"
}

# Last, so that the test runner's own summary ends the output; it has the seconds of the tests.
tests() {
    took "all before the tests" "$start"
    say "seconds by step:"
    printf '%s' "$steps" >&2
    say "== tests"
    exec cargo test --all-features "$@"
}

shaders_through_tint() {
    if ! find_chromium >/dev/null; then
        missing "shaders through Chromium's WGSL compiler: there is no Chromium"
        return 0
    fi
    dump=$(mktemp -d)
    status=0
    { "$program" shaders --dump "$dump" && python3 scripts/tint.py "$dump"/*.wgsl; } || status=$?
    rm -rf "$dump"
    return "$status"
}

# Those that depend neither on how busy the machine is (a stopped device) nor on the driver (SwiftShader keeps its code in a file in
# memory, which a limit on the size of files takes from it).
attacks() {
    for attack in run_files run_folder kill; do
        PROCESSOR_SECONDS=30 python3 "scripts/attack/$attack.py" "$program" --for 6 --count 10000 || return 1
    done
}

# What takes longest of the tests: many kernels, many processes, much waiting.
slow="device_ops:: gradients:: onnx:: soak:: endurance:: cross_check:: command_line::interrupt command_line::system"

# The program as the tests build it. `cargo build` alone would build half of the dependencies once more: the tests' own
# dependencies ask them for other features.
program=${CARGO_TARGET_DIR:-target}/debug/everygpu

took "tools and drivers" "$start"
step "format" cargo fmt --check
if [ -n "$quick" ]; then
    missing "(--quick) lints, docs, benchmarks, Chromium's WGSL compiler, attacks, SwiftShader and two drivers at once"
    missing "(--quick) tests of the names: $slow"
    step "build" cargo test --no-run --all-features --lib --bins --tests
    set --
    for name in $slow; do
        set -- "$@" --skip "$name"
    done
    tests --lib --bins --tests -- "$@"
fi
step "lints" cargo clippy --all-targets --all-features -- -D warnings
step "lints of what users build" cargo clippy -- -D warnings
step "docs" env RUSTDOCFLAGS="-D warnings ${RUSTDOCFLAGS:-}" cargo doc --no-deps --all-features
step "build" cargo test --no-run --all-features --all-targets
step "benchmarks as tests" cargo test --all-features --benches -- --test
step "shaders through Chromium's WGSL compiler" shaders_through_tint
step "attacks, by a seed" attacks
tests
