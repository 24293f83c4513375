#!/usr/bin/env python3
"""Trains the same networks from the same weights on the same batches here and in PyTorch, and compares each step.

    scripts/parity.py [--program "target/release/everygpu"] [--adapter 0] [--models mlp,gpt] [--steps 50]
                      [--keep FOLDER]
    scripts/parity.py --each-step ...   every step from the same state, and on the same sides of ReLU and max pooling
    scripts/parity.py --setup FOLDER ...    makes a virtual environment there with what is needed, and goes on in it

Needs torch, numpy and safetensors. PyTorch runs on the CPU with one thread, in f32 and, as a measure of what rounding
alone does, in f64. Prints a table for each network: the relative difference of the loss, and the largest one of the
weights. docs/parity.md says what is compared how.

exit: 0 all agree, 1 one does not, or the program failed. They agree where losses do to 1e-4 at the first step and 1e-3
at the last; with --each-step, all to 1e-5, and no tensor's error in a step is more than 8 times that of PyTorch's
f32."""

import argparse
import copy
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import venv
from dataclasses import replace

PACKAGES = ["torch", "numpy", "safetensors"]
FIRST_LOSS, LAST_LOSS = 1e-4, 1e-3
SAME_SIDES_LOSS = 1e-5
SHOWN = [1, 10, 25, 50]
APART = {"resnet20-relu"}  # rounding, where gradients jump, has its training and PyTorch's part within ten steps

if "--setup" in sys.argv[1:-1]:
    at = sys.argv.index("--setup")
    folder = pathlib.Path(sys.argv[at + 1])
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    sys.exit(subprocess.run([python, __file__, *sys.argv[1:at], *sys.argv[at + 2 :]]).returncode)

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    sys.exit(f"{error}: needs {', '.join(PACKAGES)}; --setup FOLDER makes a virtual environment with them")

from parity_data import images, text, walks
from parity_each_step import LIMIT, check_step, summary
from parity_networks import cnn, gpt, layer, network, resnet20
from parity_training import STATES, Case, Step, compare, exact, sides_of, train_told, train_torch


NESTEROV = {"lr": 0.002, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}

CASES = {
    "mlp": Case(
        "MLP 64-128-64-10, SGD with momentum",
        lambda _: [
            layer("linear", out=128), layer("relu"), layer("linear", out=64), layer("relu"), layer("linear", out=10)
        ],
        images, [64], 32, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9},
    ),
    "cnn": Case(
        "CNN with batch norm, SGD with Nesterov momentum and weight decay",
        lambda batch: cnn(layer("batch_norm", group=batch)),
        images, [3, 16, 16], 32, torch.optim.SGD, NESTEROV,
    ),
    "resnet20": Case(
        "ResNet-20 with batch norm and SiLU, SGD with Nesterov momentum and weight decay",
        lambda batch: resnet20(layer("batch_norm", group=batch), layer("silu")),
        images, [3, 16, 16], 16, torch.optim.SGD, NESTEROV,
    ),
    "resnet20-relu": Case(
        "ResNet-20 with batch norm and ReLU, SGD with Nesterov momentum and weight decay",
        lambda batch: resnet20(layer("batch_norm", group=batch), layer("relu")),
        images, [3, 16, 16], 16, torch.optim.SGD, NESTEROV,
    ),
    "gpt": Case(
        "GPT, 2 blocks, width 64, 4 heads, 32 positions, AdamW",
        lambda _: gpt(64, 2, 4),
        text, [32], 16, torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1},
    ),
    "lstm": Case(
        "LSTM, 2 layers of 64, 16 steps, Adam",
        lambda _: [layer("lstm", hidden=64, layers=2), layer("linear", out=10)],
        walks, [16, 8], 32, torch.optim.Adam, {"lr": 3e-3},
    ),
}  # fmt: skip


def toml(value):
    """A value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def run_file(sections):
    lines = []
    for name, keys in sections.items():
        lines += [f"[{name}]", *(f"{key} = {toml(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def train_here(options, case, folder, sections):
    """Every [`Step`] in the program."""
    (folder / "run.toml").write_text(run_file(sections))
    command = [*shlex.split(options.program), "train", str(folder / "run.toml")]
    command += ["--init", str(folder / "init.safetensors")]
    command += ["--adapters", options.adapter, "--set", f"output.dir={toml(str(folder / 'runs'))}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{ran.stdout}{ran.stderr}")
    run = max((folder / "runs").iterdir(), key=lambda run: run.stat().st_mtime)
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        checkpoint = run / "checkpoints" / f"step-{record['step'] + 1:08}"
        weights, state = (load_file(checkpoint / f"{kind}.safetensors") for kind in ["weights", "optimizer"])
        weights = {name: exact(value) for name, value in weights.items()}
        names = STATES[case.rule].items()
        states = {key: {name: exact(state[f"{name}.{suffix}"]) for name in weights} for key, suffix in names}
        yield Step(record["loss"], weights, states)


def run_case(options, name):
    """Prints the tables of a network; whether it agrees."""
    case = CASES[name]
    if options.lr:
        case = replace(case, settings={**case.settings, "lr": options.lr})
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary) / name
        folder.mkdir(parents=True)
        data, inputs, targets = case.data(folder, options.steps * case.batch, case.shape)
        layers = case.layers(case.batch)
        model = network(layers, case.shape)
        save_file(model.state_dict(), folder / "init.safetensors")
        sections = {
            "data": {**data, "validation": "none"},
            "model": {"layers": layers},
            "train": {
                "epochs": 1,
                "batch": case.batch,
                "shuffle": False,
                "checkpoint_every": 1,
                "keep_last": options.steps,
            },
            "optimizer": case.optimizer_section(),
        }
        steps = list(train_here(options, case, folder, sections))
    exact_inputs = exact(inputs) if inputs.is_floating_point() else inputs
    batches = [list(zip(x.split(case.batch), targets.split(case.batch))) for x in [inputs, exact_inputs]]
    print(f"### {case.title}\n")
    models = [model, copy.deepcopy(model).double()]
    return (check_each_step if options.each_step else check_training)(case, models, batches, steps)


def check_training(case, models, batches, steps):
    """Prints how far the program's training is from PyTorch's; whether the losses agree."""
    trainings = [train_torch(case, model, part) for model, part in zip(models, batches)]
    triples = zip(steps, *trainings, strict=True)
    rows = [(f32.loss, *compare(here, f32), compare(f32, f64)[0]) for here, f32, f64 in triples]
    report(rows)
    agree = rows[0][1][0] <= FIRST_LOSS and rows[-1][1][0] <= LAST_LOSS
    return judge(agree, f"The losses differ by more than {FIRST_LOSS} at the first step or {LAST_LOSS} at the last.")


def check_each_step(case, models, batches, steps):
    """Prints how far each step, from the program's state before it, is from PyTorch's, and how far the program's
    training is from PyTorch's on the same sides; whether they agree."""
    f32, f64 = models
    start = Step(0.0, {name: exact(value) for name, value in f32.state_dict().items()}, {})
    scratch = copy.deepcopy(models)
    states = zip([start, *steps], zip(*batches, strict=True), steps)
    numbered = enumerate(states)
    checked = [check_step(case, scratch, before, number, batch, step) for number, (before, batch, step) in numbered]

    theirs = [(step, sides_of(f32)) for step in train_torch(case, f32, batches[0])]
    their_sides = [sides for _, sides in theirs]
    as_here, apart = train_told(case, copy.deepcopy(f64), batches[1], [step.sides for step in checked])
    as_theirs, their_apart = train_told(case, f64, batches[1], their_sides)
    pairs = zip(steps, as_here, theirs, as_theirs, strict=True)
    rows = [
        (here.loss, *compare(here, expected), compare(step, exact)[0]) for here, expected, (step, _), exact in pairs
    ]
    report(rows)
    told, theirs_told = (
        f"{len(distances)} (farthest {max(distances, default=0):.1e})" for distances in [apart, their_apart]
    )
    print(summary(checked))
    sides = f"{told}; PyTorch's f32: {theirs_told}"
    print(f"\nElements on another side than in f64 over the training: {sides}.\n", flush=True)
    losses_agree = all(differences[0] <= SAME_SIDES_LOSS for _, differences, *_ in rows)
    agree = all(step.agrees for step in checked) and losses_agree
    complaint = f"A step's error is above {LIMIT} times PyTorch's, or a loss differs by more than {SAME_SIDES_LOSS}."
    return judge(agree, complaint)


def report(rows):
    """Prints a table of relative differences."""
    print("| step | loss | Δ loss | Δ weights | Δ momentum | f64: Δ loss | Δ weights | Δ momentum |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")

    def line(step, loss, differences):
        print(f"| {step} | {loss} | " + " | ".join(f"{value:.1e}" for value in differences) + " |")

    for step in [step for step in SHOWN if step <= len(rows)]:
        loss, ours, _, rounding = rows[step - 1]
        line(step, f"{loss:.4f}", ours + rounding)
    line("most", "", [max(values) for values in zip(*(ours + rounding for _, ours, _, rounding in rows))])
    print(f"\nWeights farthest apart at the end: `{rows[-1][2]}`.\n", flush=True)


def judge(agree, otherwise):
    """Says it where they do not agree."""
    if not agree:
        print(f"**{otherwise}**\n", flush=True)
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--program", default="target/release/everygpu", help="the program, or a command that ends in it"
    )
    parser.add_argument("--adapter", default="auto", help="as --adapters of the program")
    parser.add_argument(
        "--models", help=f"some of {','.join(CASES)}; by default all, without --each-step but {','.join(APART)}"
    )
    parser.add_argument(
        "--each-step", action="store_true", help="every step from the same state, and on the same sides"
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, help="another learning rate")
    parser.add_argument("--keep", metavar="FOLDER", help="leaves data, run files and run folders there")
    parser.add_argument("--setup", metavar="FOLDER", help="makes a virtual environment there, and goes on in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    default = [name for name in CASES if options.each_step or name not in APART]
    names = options.models.split(",") if options.models else default
    if not set(names) <= set(CASES):
        parser.error(f"--models: expected some of {', '.join(CASES)}, got {options.models}")
    agree = [run_case(options, name) for name in names]
    sys.exit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
