"""stopped_devices.py BINARY: a debugger stops devices' threads, or the whole process, at random moments of a training.

Two or three devices. A thread that is stopped for longer than the patience is a device that hangs: the others go on
without it, and it may come back. All of them stopped: an error, and nothing that was saved is lost. The whole process
stopped: nothing happens at all. Linux on x86-64 or AArch64, by ptrace: as root, or where ptrace of own children is
allowed.
"""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import common
from common import Finding

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
# How many seconds the program waits for a device, and where that may compile (by default ten minutes, longer than a
# training is waited for here). Devices that do nothing wrong must be able to keep to it, so `--patience` is for both.
PATIENCE = 1.0
COMPILE_PATIENCE = 20.0

RUN = common.DATA + """[model]
layers = [{{ kind = "linear", out = 5 }}, "tanh", {{ kind = "linear", out = 3 }}]
[train]
epochs = {epochs}
batch = 12
split = "even"
checkpoint_every = {checkpoint_every}
snapshot_every = {snapshot_every}
cross_check_every = {cross_check_every}
[devices]
adapters = "all"
replicas = {replicas}
hang_timeout = {patience}
compile_timeout = {compile_patience}
rejoin_after = {rejoin_after}
"""


def request(what, thread):
    if LIBC.ptrace(what, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def devices(process):
    """The threads of the devices, by number: the first of each name. A driver's threads that it starts later have its
    name, too; among llvmpipe's is one that computes for all devices.
    """
    found = {}
    for task in sorted(Path(f"/proc/{process.pid}/task").iterdir(), key=lambda task: int(task.name)):
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # It has just ended.
            continue
        if name.startswith("replica "):
            found.setdefault(int(name.split()[1]), int(task.name))
    return found


def stop(thread):
    request(SEIZE, thread)
    request(INTERRUPT, thread)


def let_go(thread):
    """Lets a thread run again; one that has ended in between needs nothing."""
    try:
        os.waitpid(thread, 0x40000000 | os.WUNTRACED)  # __WALL
        request(DETACH, thread)
    except OSError:
        pass


def reap(threads, process):
    """Takes leave of stopped threads once the process ends: until then its end is not told."""
    while process.returncode is None:
        for thread in threads:
            try:
                os.waitpid(thread, 0x40000000 | os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.02)


def where_threads_are(process):
    """What every thread waits for: its name, its system call with its arguments, stack and instruction, each address by
    file and offset. A debugger cannot be asked: it would wait for the thread that is stopped here."""
    mappings = []
    for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
        span, _, offset, _, _, *name = line.split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        mappings.append((first, last, int(offset, 16), name[0].rsplit("/", 1)[-1] if name else "memory"))

    def located(word):
        address = int(word, 16) if word.startswith("0x") else -1
        within = (mapping for mapping in mappings if mapping[0] <= address < mapping[1])
        return next((f"{name}+{address - first + offset:#x}" for first, _, offset, name in within), word)

    told = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        name, call = (task / "comm").read_text().strip(), (task / "syscall").read_text().split()
        told.append(f"{name}: {' '.join(map(located, call))}")
    return "\n".join(told)


def case(binary, folder, numbers):
    replicas = numbers.choice([2, 2, 3])
    common.table(folder / "t.csv", rows=64)
    patience = PATIENCE * common.patience
    text = RUN.format(replicas=replicas, epochs=40, patience=patience, checkpoint_every=numbers.choice([0, 1, 7]),
                      snapshot_every=numbers.choice([1, 5, 1000]), cross_check_every=numbers.choice([0, 9]),
                      rejoin_after=numbers.choice([0, 5]), compile_patience=COMPILE_PATIENCE * common.patience)
    (folder / "t.toml").write_text(text)
    process = common.start(binary, ["train", "t.toml"], folder)
    run = folder / "runs" / "t-1"
    limit = common.deadline(60)
    while not (run / "checkpoints").exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)
    time.sleep(numbers.random() * 1.0)
    kind = numbers.choice(["process", "one", "one", "one after the other", "all"])
    long = numbers.random() < 0.8
    seconds = patience * (numbers.uniform(1.5, 3.0) if long else numbers.uniform(0.05, 0.5))
    stopped = []
    try:
        if kind == "process":
            process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
        else:
            threads = list(devices(process).values())
            numbers.shuffle(threads)
            count = {"one": 1, "one after the other": 2, "all": len(threads)}[kind]
            for thread in threads[:count]:
                stop(thread)
                stopped.append(thread)
                if kind == "one after the other":
                    time.sleep(numbers.random() * 2 * patience)
            time.sleep(seconds)
    except OSError:
        pass  # The training had ended.
    # A thread that is stopped for good must not keep the program from ending.
    for_good = kind == "one" and long and numbers.random() < 0.5
    if for_good:
        threading.Thread(target=reap, args=(stopped, process), daemon=True).start()
    else:
        for thread in stopped:
            let_go(thread)
    ran = common.finish(process, 90, where_threads_are)
    try:
        ran.in_order()
    except Finding as finding:
        raise Finding(f"{kind} stopped for {seconds:.1f} s: {finding}") from None
    # A thread may be stopped while it holds a lock of the whole process (the allocator's): then all devices hang with
    # it.
    if kind == "process" and ran.code != 0:
        raise Finding(f"{kind} stopped for {seconds:.1f} s, and the training fails: {ran}")
    if kind == "process" and "left out" in ran.out + ran.error:
        raise Finding(f"a device was given up because the process was stopped: {ran}")
    saved = common.checkpoints(run)
    metrics = run / "metrics.jsonl"
    if ran.code == 0:
        steps = [line["step"] for line in common.lines_of(metrics)]
        if steps != list(range(160)):
            raise Finding(f"{kind} stopped for {seconds:.1f} s: the record's steps are {steps}")
        return f"{kind}: went on"
    if not saved:
        return f"{kind}: error before the first checkpoint"
    again = common.run(binary, ["train", "--resume", "runs/t-1"], folder).in_order()
    if again.code != 0:
        what = f"{kind} stopped for {seconds:.1f} s: {len(saved)} checkpoints"
        raise Finding(f"{what}, and it cannot go on: {again}\n{ran}")
    steps = [line["step"] for line in common.lines_of(metrics)]
    if steps != list(range(160)):
        raise Finding(f"{kind} stopped for {seconds:.1f} s, resumed: the record's steps are {steps}")
    return f"{kind}: error, resumed"


if __name__ == "__main__":
    common.main("stopped_devices", case, __doc__)
