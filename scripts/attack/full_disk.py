"""full_disk.py BINARY: trainings whose disk is full, or whose files may not grow, at random points.

As root on a small file system of its own, else by a limit on the size of files. The training ends with one readable
error (or has had room enough); what it saved until then is whole: with more room it goes on, and ends with the weights
of a run that had room, bit by bit.
"""

import os
import subprocess

import common
from common import Finding

RUN = common.DATA + """[model]
layers = [{{ kind = "linear", out = {width} }}, "tanh", {{ kind = "linear", out = 3 }}]
[train]
epochs = 4
batch = 12
checkpoint_every = {checkpoint_every}
keep_last = {keep_last}
split = "even"
deterministic = true
[devices]
adapters = "all"
"""


def mount(*arguments):
    return subprocess.run(["mount", *arguments], stderr=subprocess.DEVNULL).returncode == 0


def case(binary, folder, numbers):
    whole, tight = folder / "whole", folder / "tight"
    text = RUN.format(width=numbers.choice([5, 300, 2000]), checkpoint_every=numbers.choice([0, 1, 2]),
                      keep_last=numbers.choice([1, 3]))
    for place in (whole, tight):
        place.mkdir()
        (place / "t.toml").write_text(text)
        common.table(place / "t.csv")
    common.run(binary, ["train", "t.toml"], whole).well()
    expected = whole / "runs" / "t-1"
    size = max(path.stat().st_size for path in expected.rglob("*"))
    total = sum(path.stat().st_size + 4096 for path in expected.rglob("*"))
    disk = tight / "runs"
    disk.mkdir()
    mounted = os.geteuid() == 0 and numbers.random() < 0.6 and \
        mount("-t", "tmpfs", "-o", f"size={int(4096 + numbers.random() * 1.3 * total)}", "none", str(disk))
    try:
        limit = None if mounted else int(numbers.random() * 1.2 * size)
        ran = common.run(binary, ["train", "t.toml"], tight, file_size=limit).in_order()
        if mounted and not mount("-o", "remount,size=64m", str(disk)):
            return "the disk could not be made larger"
        run = disk / "t-1"
        return check(binary, tight, run, expected, ran)
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def check(binary, place, run, expected, ran):
    saved = common.checkpoints(run)
    said = ("No space", "File too large", "os error 27", "os error 28")
    if ran.code != 0 and not any(words in ran.error for words in said):
        raise Finding(f"does not say that the disk is full: {ran}")
    if ran.code == 0:
        outcome = "had room"
    elif not saved:
        if run.exists() and (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size:
            return "full before the first checkpoint, record kept"
        return "full before the first checkpoint"
    else:
        common.run(binary, ["train", "--resume", "runs/t-1"], place).well()
        outcome = "full, went on"
    ends = [common.checkpoints(folder)[-1] for folder in (expected, run)]
    if ends[0].name != ends[1].name:
        raise Finding(f"ends at {ends[1].name}, not at {ends[0].name}: {ran}")
    for name in ("weights.safetensors", "optimizer.safetensors"):
        if (ends[0] / name).read_bytes() != (ends[1] / name).read_bytes():
            raise Finding(f"{name} of {ends[0].name} differs: {ran}")
    steps = [line["step"] for line in common.lines_of(run / "metrics.jsonl")]
    if steps != list(range(len(steps))):
        raise Finding(f"the record's steps are {steps}: {ran}")
    return outcome


if __name__ == "__main__":
    common.main("full_disk", case, __doc__)
