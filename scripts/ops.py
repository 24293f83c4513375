#!/usr/bin/env python3
"""Writes docs/ops.md: every op's largest error on each adapter of this machine, as the test of all ops measures it.

    scripts/ops.py                          builds the tests and runs that one, for a minute or more
    scripts/ops.py --run 'PROGRAM ARGS'     runs this instead, such as a test binary that is there already
    scripts/ops.py --program PROGRAM        the everygpu that tells the adapters' drivers

Which drivers there are is up to VK_DRIVER_FILES, a list of their manifests.
"""
import argparse
import os
import json
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST = "every_op_agrees"
LINE = re.compile(r"(adapter \d+ .*): (\w+) is off by ([0-9.]+) × the tolerance at most")
PAGE = f"""# How exact each op is

Written by `scripts/ops.py`; do not edit. For every op, the largest error on a device against the op's reference in
float64, over all its test sizes, in both tilings, forward and (where it has one) backward. The unit is the tolerance:
2e-5 absolute + 2e-5 of the value for f32; whole numbers must be exact. The test `{TEST}…` fails beyond 1.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default=f"cargo test --all-features --test integration {TEST} -- --nocapture")
    parser.add_argument("--program", default=str(ROOT / "target/debug/everygpu"))
    options = parser.parse_args()
    out = subprocess.run(shlex.split(options.run), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "EVERYGPU_TEST_OPS": "all"}).stdout
    errors = {}
    for adapter, op, error in LINE.findall(out):
        errors.setdefault(op, {})[adapter] = error
    if not errors:
        raise SystemExit(f"{options.run}: it printed no op's error; is --nocapture there?")
    listed = subprocess.run([options.program, "adapters", "--json"], check=True, stdout=subprocess.PIPE, text=True)
    drivers = {f"adapter {a['index']} ({a['name']})": f"{a['name']}, {a['driver']}" for a in json.loads(listed.stdout)}
    rows = [["op", *drivers.values()], ["---", *["---:"] * len(drivers)]]
    rows += [[f"`{op}`", *[by.get(adapter, "–") for adapter in drivers]] for op, by in sorted(errors.items())]
    page = PAGE + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    (ROOT / "docs/ops.md").write_text(page, encoding="utf-8")


main()
