#!/bin/sh
# Times a training step of three networks with everygpu and with other trainers on the same machine, alternately, and
# prints a table in Markdown.
#
#     scripts/compare.sh                       everygpu, and Burn where it can be built (the first time takes long)
#     PYTHON=venv/bin/python scripts/compare.sh    PyTorch on the CPU, too, of a Python that has it
#
# EVERYGPU and BURN name programs that are there already (from the root of the repository); BURN=no leaves Burn out,
# BURN_DEVICE (cpu, discrete, integrated, virtual) says what it runs on. More words go to benches/peers/compare.py:
# --adapter N, --rounds N, --steps N, --models mlp cnn gpt.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${EVERYGPU:-}" ]; then
    cargo build --release
    EVERYGPU=${CARGO_TARGET_DIR:-target}/release/everygpu
fi
if [ -z "${BURN:-}" ]; then
    if (cd benches/peers/burn && cargo build --release); then
        BURN=${CARGO_TARGET_DIR:-benches/peers/burn/target}/release/peer-burn
    else
        echo "Burn could not be built and is left out" >&2
        BURN=no
    fi
fi
[ "$BURN" = no ] || set -- --burn "$BURN" "$@"
[ -z "${PYTHON:-}" ] || set -- --pytorch "$@"
exec "${PYTHON:-python3}" benches/peers/compare.py --everygpu "$EVERYGPU" "$@"
