"""kill.py BINARY: kills trainings at random moments, some of them several times, and goes on with `--resume`.

Two devices, checkpoints at each step or rarely, loss spikes that training goes back from, moving averages. Where the
settings make the run repeatable, the weights at the end are those of a run that nobody killed, bit by bit, and so is
the record. With strace, half of the kills come at a random system call that writes, so that every moment between two of
them gets its turn.
"""

import shutil
import time

import common
from common import Finding

CALLS = "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,openat,fsync,fdatasync,ftruncate,write"
STRACE = shutil.which("strace")


def settings(numbers):
    """A random run, and whether it is the same run wherever it is interrupted."""
    every = numbers.choice([1, 2, 3])
    spikes = numbers.choice(["ignore", "skip", "roll-back", "roll-back"])
    aligned = numbers.random() < 0.5
    run = {
        "data": {"format": "csv", "path": "t.csv", "scale": "none", "validation": numbers.choice([0.25, "none"])},
        "model": {},
        "train": {
            "epochs": numbers.randint(2, 4), "batch": 6, "seed": numbers.randint(0, 99), "split": "even",
            "deterministic": True, "snapshot_every": every,
            "checkpoint_every": every if aligned else numbers.choice([0, 1, 2]),
            "keep_last": numbers.choice([1, 2, 3]), "keep_best": numbers.choice([0, 1]),
            "on_loss_spike": spikes, "spike_warmup": 3, "spike_threshold": 2.0,
            "verify_weights_every": 3,
        },
        "optimizer": {"kind": numbers.choice(["adamw", "sgd", "lion"]), "lr": 0.01,
                      "ema_decay": numbers.choice(["none", 0.9])},
        "devices": {"adapters": "all", "replicas": numbers.choice([1, 2, 2])},
    }
    layers = 'layers = [{ kind = "linear", out = 5 }, "tanh", { kind = "linear", out = 3 }]'
    text = common.toml(run).replace("[model]", f"[model]\n{layers}")
    # A spike goes back to the last snapshot: after a resume that is the checkpoint, so both must be of the same step.
    # An epoch has 6 steps with a part held out, and 8 without.
    steps = 6 if run["data"]["validation"] != "none" else 8
    repeatable = spikes != "roll-back" or (aligned and steps % every == 0)
    return text, repeatable


def begin(binary, arguments, folder, numbers, length):
    """Starts a training and kills it somewhere."""
    run = folder / "runs" / "t-1"
    if STRACE and numbers.random() < 0.5:
        call, when = numbers.choice(CALLS.split(",")), int(2 ** (numbers.random() * 7))
        if call == "write":
            when = int(2 ** (numbers.random() * 9))
        prefix = [STRACE, "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}",
                  "-e", f"inject={call}:signal=KILL:when={when}"]
        common.run(binary, arguments, folder, prefix=prefix)
        return
    resumes = run.exists()
    process = common.start(binary, arguments, folder)
    limit = common.deadline(60)
    # The devices are opened before the folder is made.
    while not resumes and not (run / "checkpoints").exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)
    time.sleep(numbers.random() * length * (2 if resumes else 1))
    common.kill(process)
    common.finish(process, 60)


def record(run):
    """What the record says, without the times in it."""
    steps = common.lines_of(run / "metrics.jsonl")
    return [{key: value for key, value in line.items() if key != "seconds"} for line in steps]


def case(binary, folder, numbers):
    text, repeatable = settings(numbers)
    outliers = {numbers.randrange(48)} if numbers.random() < 0.7 else set()
    places = [folder / "whole", folder / "killed"]
    seed = numbers.random()
    for place in places:
        place.mkdir()
        common.table(place / "t.csv", seed=seed, outliers=outliers)
        (place / "t.toml").write_text(text)
    began = time.monotonic()
    common.run(binary, ["train", "t.toml"], places[0]).well()
    length = 0.7 * (time.monotonic() - began)
    whole = places[0] / "runs" / "t-1"

    run = places[1] / "runs" / "t-1"
    begin(binary, ["train", "t.toml"], places[1], numbers, length)
    kills = 1
    while numbers.random() < 0.4 and common.checkpoints(run):
        begin(binary, ["train", "--resume", "runs/t-1"], places[1], numbers, length)
        kills += 1
    had = common.checkpoints(run)
    if not run.exists():
        return "killed before there was a folder"
    ran = common.run(binary, ["train", "--resume", "runs/t-1"], places[1]).in_order()
    if not had:
        if ran.code == 0 or common.checkpoints(run):
            raise Finding(f"resumes from nothing: {ran}")
        return "killed before the first checkpoint"
    if ran.code != 0:
        raise Finding(f"{len(had)} checkpoints, and it cannot go on after {kills} kills: {ran}")
    ends = [common.checkpoints(place)[-1] for place in (whole, run)]
    left = [path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("step-")]
    # A run that was killed over its last clean-up has nothing left to do, and so no save that would finish it.
    if left and "nothing is left to do" not in ran.out:
        raise Finding(f"left behind: {left}")
    steps = [line["step"] for line in record(run)]
    if steps != list(range(len(steps))):
        raise Finding(f"the record has a gap or a double after {kills} kills: steps {steps}")
    if not repeatable:
        return "went on"
    if ends[0].name != ends[1].name:
        raise Finding(f"ends at {ends[1].name}, not at {ends[0].name}")
    for name in ("weights.safetensors", "optimizer.safetensors"):
        if (ends[0] / name).read_bytes() != (ends[1] / name).read_bytes():
            raise Finding(f"{name} of {ends[0].name} differs after {kills} kills")
    if record(whole) != record(run):
        raise Finding(f"the record differs after {kills} kills")
    return "bit-equal"


if __name__ == "__main__":
    common.main("kill", case, __doc__)
