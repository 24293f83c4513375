"""run_folder.py BINARY: changes one file of a run folder at random, then goes on with it, evaluates, predicts and
exports.

Bits flipped, bytes cut, put in, zeroed or doubled, numbers and strings of JSON and TOML replaced by extreme ones, files
emptied, removed, exchanged or replaced by folders. Whatever was done: each command ends by itself, with a result or one
readable error. And no damage changes a prediction in silence: it is what it was before, or an error.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import common
from common import Finding

RUN = """
[data]
format = "csv"
path = "t.csv"
scale = "standardize"
validation = 0.25
[model]
layers = [{ kind = "linear", out = 5 }, { kind = "batch_norm", group = 4 }, "tanh", { kind = "linear", out = 3 }]
[train]
epochs = 2
batch = 12
checkpoint_every = 1
keep_last = 3
split = "even"
deterministic = true
[optimizer]
ema_decay = 0.5
[devices]
adapters = "all"
"""

COMMANDS = {
    "resume": ["train", "--resume", "runs/t-1", "--set", "train.epochs=3"],
    "eval": ["eval", "runs/t-1"],
    "predict": ["predict", "runs/t-1", "--input", "t.csv"],
    "predict latest": ["predict", "runs/t-1", "--input", "t.csv", "--checkpoint", "latest"],
    "export": ["export", "runs/t-1", "out.safetensors"],
}
EXTREMES = ["0", "-1", "18446744073709551615", "9223372036854775808", "1e308", "-1e-320", "null", "true", "[]",
            "{}", '""',
            '"\\u001b[31m"', "1e999", '"' + "A" * 70000 + '"', "[" * 3000 + "]" * 3000]


def whole(binary):
    """The run that is damaged, with the outputs of its commands: made once, and removed with the cache beside it."""
    kept = Path(os.environ["EVERYGPU_CACHE_DIR"]) / "whole"
    if not (kept / "ready").exists():
        made = Path(tempfile.mkdtemp(prefix="everygpu-whole-"))
        common.table(made / "t.csv")
        (made / "t.toml").write_text(RUN)
        common.run(binary, ["train", "t.toml"], made).well()
        for name in ("predict", "predict latest"):
            (made / name).write_text(common.run(binary, COMMANDS[name], made).well().out)
        (made / "ready").touch()
        try:
            made.rename(kept)
        except OSError:  # Another process was first.
            shutil.rmtree(made)
    return kept


def damage_bytes(data, numbers):
    at = numbers.randrange(len(data) + 1)
    some = numbers.randrange(1, 64)
    kind = numbers.choice(["flip", "cut", "insert", "zero", "double", "empty", "random", "append"])
    changed = bytearray(data)
    if kind == "flip" and data:
        changed[at % len(data)] ^= 1 << numbers.randrange(8)
    elif kind == "cut":
        del changed[at:numbers.choice([at + some, len(data)])]
    elif kind == "insert":
        changed[at:at] = numbers.randbytes(some)
    elif kind == "zero":
        changed[at:at + some] = bytes(len(changed[at:at + some]))
    elif kind == "double":
        changed[at:at] = changed[at:at + some]
    elif kind == "empty":
        changed.clear()
    elif kind == "random":
        changed = bytearray(numbers.randbytes(len(data)))
    else:
        changed += numbers.choice([b"\0" * some, b"\n", b"{}", b"\xff\xfe", numbers.randbytes(some)])
    return kind, bytes(changed)


def damage_values(text, numbers):
    """Another value in the place of one of a JSON or TOML text."""
    found = list(re.finditer(r'-?\d+(\.\d+)?(e[+-]?\d+)?|"[^"\n]*"|true|false|null', text))
    if not found:
        return "nothing to replace", text
    one = numbers.choice(found)
    return "value", text[:one.start()] + numbers.choice(EXTREMES) + text[one.end():]


def damage_lines(text, numbers):
    lines = text.splitlines(keepends=True)
    if not lines:
        return "no lines", text
    at = numbers.randrange(len(lines))
    kind = numbers.choice(["line gone", "line twice", "lines turned"])
    if kind == "line gone":
        del lines[at]
    elif kind == "line twice":
        lines.insert(at, lines[at])
    else:
        lines.reverse()
    return kind, "".join(lines)


def damage(run, numbers):
    """Damages one file below `run`. What was done to which."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    path = numbers.choice(files)
    name = str(path.relative_to(run))
    how = numbers.random()
    if how < 0.08:
        path.unlink()
        if numbers.random() < 0.3:
            path.mkdir()
            return name, "folder"
        return name, "removed"
    if how < 0.14:
        other = numbers.choice(files)
        data = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return name, f"exchanged with {other.relative_to(run)}"
    is_text = path.suffix in (".json", ".jsonl", ".toml")
    if is_text and how < 0.6:
        text = path.read_text()
        kind, changed = numbers.choice([damage_values, damage_values, damage_lines])(text, numbers)
        path.write_text(changed)
        return name, kind
    kind, changed = damage_bytes(path.read_bytes(), numbers)
    path.write_bytes(changed)
    return name, kind


def case(binary, folder, numbers):
    shutil.copytree(whole(binary), folder, dirs_exist_ok=True)
    run = folder / "runs" / "t-1"
    what = [damage(run, numbers) for _ in range(numbers.choice([1, 1, 1, 2]))]
    told = ", ".join(f"{name}: {kind}" for name, kind in what)
    # Who edits the run file means it; all else has to be what the run wrote.
    edited = any(name == "run.toml" or "run.toml" in kind for name, kind in what)
    outcomes = []
    for name in ("predict", "predict latest", *numbers.sample(["resume", "eval", "export"], 1)):
        try:
            ran = common.run(binary, COMMANDS[name], folder, seconds=60).in_order()
        except Finding as finding:
            raise Finding(f"after {told}: {finding}") from None
        other = ran.code == 0 and name.startswith("predict") and ran.out != (folder / name).read_text()
        # Where the best checkpoint is damaged, the next best is taken, and a warning says so; one that is gone is gone.
        if other and not edited and not ran.error and not any(kind in ("removed", "folder") for _, kind in what):
            raise Finding(f"after {told}: {name} gives another prediction without a word\n{ran}")
        if name == "resume" and ran.code == 0:
            text = (run / "metrics.jsonl").read_text()
            steps = [json.loads(line)["step"] for line in text.splitlines()]
            touched = any("metrics.jsonl" in part for pair in what for part in pair)
            if steps != sorted(set(steps)) or (not touched and steps != list(range(len(steps)))):
                raise Finding(f"after {told}: the record's steps are {steps}")
        outcomes.append("well" if ran.code == 0 else "error")
    return "all well" if set(outcomes) == {"well"} else "told"


if __name__ == "__main__":
    common.main("run_folder", case, __doc__)
