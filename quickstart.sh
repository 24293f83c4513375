#!/bin/sh
# From a fresh clone to a trained network: makes sure there is a Rust toolchain and a WebGPU adapter (installing what is
# missing; it says what, and uses root only for that), builds everygpu and trains its built-in example on every adapter
# found. Arguments go to 'everygpu demo':
#
#   ./quickstart.sh
#   ./quickstart.sh --replicas 2
set -eu
cd -- "$(dirname -- "$0")"
script=quickstart
. scripts/setup.sh

ensure_rust
ensure_adapter
say "building (the first time takes a minute or two)"
cargo build --release --bin everygpu
exec "${CARGO_TARGET_DIR:-target}/release/everygpu" demo "$@"
