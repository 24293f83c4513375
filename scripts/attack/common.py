"""What the attacks share: cases by seed, the program under limits, and what may never happen.

A case is a function of (binary, folder, random numbers) that returns what came out in a word or two, and raises Finding
for what must not be. Case number i of a seed is always the same; `--only i` repeats it and keeps its folder.
"""

import argparse
import collections
import json
import multiprocessing
import os
import queue
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


# What run files say of the file that table() makes.
DATA = """
[data]
format = "csv"
path = "t.csv"
scale = "none"
validation = 0.25
"""

# How many times as long as on an idle machine a command may take until it counts as one that does not end.
patience = 1.0


class Finding(Exception):
    """Something that must not be, whatever was done to the program or its files."""


class Ran:
    """What a command did. `code` is negative for a signal, None when it was still running at its time limit."""

    def __init__(self, arguments, code, out, error, seconds):
        self.arguments, self.code, self.out, self.error, self.seconds = arguments, code, out, error, seconds

    def __str__(self):
        command = " ".join(map(str, self.arguments))
        told = self.error[-8000 if self.code is None else -1500:]
        return f"{command}: code {self.code}, {self.seconds:.1f} s\n{self.out[-600:]}{told}"

    def in_order(self):
        """It ended by itself: well, or with one readable error."""
        if self.code is None:
            raise Finding(f"does not end: {self}")
        if self.code not in (0, 1, 2):
            raise Finding(f"died: {self}")
        if "panicked" in self.error or "RUST_BACKTRACE" in self.error:
            raise Finding(f"panicked: {self}")
        errors = [line for line in self.error.splitlines() if line.startswith("error: ")]
        if self.code == 1 and len(errors) != 1:
            raise Finding(f"fails without one error: {self}")
        if any(len(line) > 9000 for line in self.error.splitlines()):
            raise Finding(f"a message of over 9,000 characters: {str(self)[:500]}")
        if any(ord(c) < 32 and c not in "\n\t\r" for c in self.out + self.error):
            raise Finding(f"control characters reach the terminal: {self!s}")
        return self

    def well(self):
        if self.in_order().code != 0:
            raise Finding(f"fails: {self}")
        return self


def start(binary, arguments, folder, file_size=None, prefix=()):
    """The program, begun in `folder`. Its output goes into pipes: a limit on the size of files would hold for files of
    output, too.
    """

    def limits():
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    command = [*map(str, prefix), str(binary), *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limits,
                            env={**os.environ, "RUST_BACKTRACE": "0"}, start_new_session=True)


def deadline(seconds):
    """The moment until which something may take that takes less than `seconds` on an idle machine."""
    return time.monotonic() + seconds * patience


def finish(process, seconds, examine=lambda process: ""):
    """Waits for it; ends it with all it started when it takes too long, after `examine` has said something about it."""
    begin = time.monotonic()
    try:
        out, error = process.communicate(timeout=seconds * patience)
        code = process.returncode
        found = ""
    except subprocess.TimeoutExpired:
        found = examine(process)
        kill(process)
        out, error = process.communicate()
        code = None
    out, error = (data.decode("utf-8", "replace") for data in (out, error))
    return Ran(process.args, code, out, error + found, time.monotonic() - begin)


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(binary, arguments, folder, seconds=120, **how):
    return finish(start(binary, arguments, folder, **how), seconds)


def table(path, rows=48, seed=1, outliers=()):
    """A CSV file of three classes in two features; the rows of `outliers` are far away, and wrong."""
    numbers = random.Random(seed)
    lines = ["x,y,label"]
    for row in range(rows):
        kind = row % 3
        x, y = (numbers.gauss(2.0 * (kind == 1), 0.7), numbers.gauss(2.0 * (kind == 2), 0.7))
        if row in outliers:
            x, y, kind = 60.0, -60.0, (kind + 1) % 3
        lines.append(f"{x:.4f},{y:.4f},c{kind}")
    Path(path).write_text("\n".join(lines) + "\n")


def toml(sections):
    """A run file of nested dictionaries of plain values."""
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def lines_of(path):
    """A JSON-lines file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def checkpoints(folder):
    """The finished checkpoints of a run folder, oldest first."""
    found = (Path(folder) / "checkpoints").glob("step-*")
    return sorted((path for path in found if path.name[5:].isdigit()), key=lambda path: int(path.name[5:]))


def _case(job):
    case, name, binary, seed, index, kept = job
    folder = Path(kept or tempfile.mkdtemp(prefix=f"everygpu-{name}-"))
    try:
        numbers = random.Random(f"{name} {seed} {index}")
        return index, case(binary, folder, numbers), None
    except Finding as finding:
        return index, "FINDING", str(finding)
    except Exception as error:  # The script's own fault is one, too.
        return index, "FINDING", f"the script failed: {type(error).__name__}: {error}"
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _be_patient(factor):
    global patience
    patience = factor


def main(name, case, description, count=100):
    """Runs the cases, prints what came out how often, and ends with 1 where there was a finding."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("binary", type=lambda path: Path(path).resolve())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case, to go on with a seed")
    parser.add_argument("--for", type=float, dest="span", metavar="SECONDS", help="begin no case after so many seconds")
    parser.add_argument("--patience", type=float, default=1, metavar="FACTOR",
                        help="wait so many times as long for a command to end, on a machine that is busy with others")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", type=int, help="this case alone; its folder is kept")
    arguments = parser.parse_args()
    if not arguments.binary.is_file():
        sys.exit(f"{arguments.binary}: no such file")
    kept = tempfile.mkdtemp(prefix=f"everygpu-{name}-") if arguments.only is not None else None
    # The self-test once, not at each start.
    cache = tempfile.TemporaryDirectory(prefix="everygpu-cache-")
    os.environ["EVERYGPU_CACHE_DIR"] = cache.name
    indices = [arguments.only] if kept else range(arguments.first, arguments.first + arguments.count)
    jobs = [(case, name, arguments.binary, arguments.seed, index, kept) for index in indices]
    outcomes, findings, begin = collections.Counter(), 0, time.monotonic()
    with multiprocessing.Pool(arguments.jobs, _be_patient, (arguments.patience,)) as pool:
        running, left, done = 0, iter(jobs), queue.SimpleQueue()
        while True:
            over = arguments.span is not None and time.monotonic() - begin > arguments.span
            while running < arguments.jobs and not over and (job := next(left, None)):
                pool.apply_async(_case, (job,), callback=done.put, error_callback=done.put)
                running += 1
            if not running:
                break
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            running -= 1
            index, outcome, finding = result
            outcomes[outcome] += 1
            if finding:
                findings += 1
                print(f"{name} case {index}: {finding}", flush=True)
    told = ", ".join(f"{outcome} {number}" for outcome, number in outcomes.most_common())
    print(f"{name}, seed {arguments.seed}: {sum(outcomes.values())} cases in {time.monotonic() - begin:.0f} s: {told}")
    if kept:
        print(f"the case's folder: {kept}")
    sys.exit(1 if findings else 0)
