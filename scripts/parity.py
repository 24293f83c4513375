#!/usr/bin/env python3
"""Trains the same networks from the same weights on the same batches here and in PyTorch, and compares each step.

    scripts/parity.py [--program "target/release/everygpu"] [--adapter 0] [--models mlp,gpt] [--steps 50] [--keep FOLDER]
    scripts/parity.py --setup FOLDER ...    makes a virtual environment there with what is needed, and goes on in it

Needs torch, numpy and safetensors. PyTorch runs on the CPU with one thread, in f32 and, as a measure of what rounding alone
does, in f64. Prints a table for each network: the relative difference of the loss, and the largest one of the weights.
docs/parity.md says what is compared how.

exit: 0 all losses agree, 1 one does not (1e-4 at the first step, 1e-3 at the last), or the program failed."""

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
from dataclasses import dataclass, field

PACKAGES = ["torch", "numpy", "safetensors"]
FIRST_LOSS, LAST_LOSS = 1e-4, 1e-3
SHOWN = [1, 10, 25, 50]

if "--setup" in sys.argv[1:-1]:
    at = sys.argv.index("--setup")
    folder = pathlib.Path(sys.argv[at + 1])
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    sys.exit(subprocess.run([python, __file__, *sys.argv[1:at], *sys.argv[at + 2 :]]).returncode)

try:
    import numpy
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as error:
    sys.exit(f"{error}: needs {', '.join(PACKAGES)}; --setup FOLDER makes a virtual environment with them")


# Networks, written once: as the run file has them, and with PyTorch's own modules for each kind of layer.


def layer(kind, **keys):
    return {"kind": kind, **keys}


def conv(out, kernel=3, stride=1):
    return layer("conv2d", out=out, kernel=kernel, stride=stride, padding=kernel // 2, bias=False)


def basic_block(norm, width, stride=1):
    """The residual block of a ResNet, with a 1×1 convolution where the shape changes, and SiLU: with ReLU, whose gradient
    jumps, rounding alone has PyTorch's f32 and f64 apart within ten steps."""
    body = [conv(width, stride=stride), norm, layer("silu"), conv(width), norm]
    shortcut = [conv(width, 1, stride), norm] if stride > 1 else []
    return [layer("residual", layers=body, shortcut=shortcut), layer("silu")]


def stage(norm, width):
    """Half the height and width, and three blocks."""
    rest = layer("repeat", times=2, layers=basic_block(norm, width))
    return [layer("block", layers=basic_block(norm, width, 2)), rest]


def resnet20(norm):
    first = [conv(16), norm, layer("silu"), layer("repeat", times=3, layers=basic_block(norm, 16))]
    return first + stage(norm, 32) + stage(norm, 64) + [layer("global_avg_pool"), layer("linear", out=10)]


def cnn(norm):
    convolutions = [conv(16), norm, layer("relu"), layer("max_pool2d", kernel=2), conv(32), norm, layer("relu")]
    return convolutions + [layer("max_pool2d", kernel=2), layer("flatten"), layer("linear", out=10)]


def gpt(width, depth, heads):
    attention = [layer("layer_norm"), layer("self_attention", heads=heads, causal=True)]
    mlp = [layer("linear", out=4 * width), layer("gelu_tanh"), layer("linear", out=width)]
    block = [layer("residual", layers=attention), layer("residual", layers=[layer("layer_norm"), *mlp])]
    first = [layer("embedding", name="tokens", vocabulary=256, width=width), layer("positions")]
    return first + [layer("repeat", times=depth, layers=block), layer("layer_norm"), layer("tied_linear", to="tokens")]


class BatchNorm(nn.BatchNorm2d):
    """Knows how many elements a channel has in a batch: `running_var` is unbiased here, and biased in the program."""

    def forward(self, x):
        self.elements = x.numel() // x.shape[1]
        return super().forward(x)

    def biased_running_var(self):
        start = (1 - self.momentum) ** int(self.num_batches_tracked)
        return start + (self.running_var - start) * (self.elements - 1) / self.elements


class GlobalAveragePool(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, x):
        return x + self.weight


class CausalSelfAttention(nn.MultiheadAttention):
    def __init__(self, width, heads):
        super().__init__(width, heads, batch_first=True)
        for bias in [self.in_proj_bias, self.out_proj.bias]:
            nn.init.normal_(bias, std=0.1)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]


class LastStep(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0][:, -1]


class Residual(nn.Module):
    """Its layers are its children, as their names here want it."""

    def __init__(self, body, shortcut):
        super().__init__()
        self.body = [name for name, _ in body.named_children()]
        for name, module in body.named_children():
            self.add_module(name, module)
        if len(shortcut) > 0:
            self.shortcut = shortcut

    def forward(self, x):
        y = x
        for name in self.body:
            y = getattr(self, name)(y)
        return y + (self.shortcut(x) if hasattr(self, "shortcut") else x)


class TiedLinear(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.of = [embedding]  # in a list, its weight is not this module's, too

    def forward(self, x):
        return x @ self.of[0].weight.T


def module(entry, shape, around):
    """PyTorch's module for a layer that takes samples of `shape`; `around` is the list that it stands in."""
    keys = {key: value for key, value in entry.items() if key not in ("kind", "name")}
    match entry["kind"]:
        case "linear":
            return nn.Linear(shape[-1], keys["out"])
        case "conv2d":
            return nn.Conv2d(shape[0], keys.pop("out"), keys.pop("kernel"), **keys)
        case "batch_norm":
            return BatchNorm(shape[0])
        case "relu":
            return nn.ReLU()
        case "silu":
            return nn.SiLU()
        case "gelu_tanh":
            return nn.GELU(approximate="tanh")
        case "max_pool2d":
            return nn.MaxPool2d(keys["kernel"])
        case "global_avg_pool":
            return GlobalAveragePool()
        case "flatten":
            return nn.Flatten()
        case "layer_norm":
            return nn.LayerNorm(shape[-1])
        case "embedding":
            table = nn.Embedding(keys["vocabulary"], keys["width"])
            nn.init.normal_(table.weight, std=0.1)
            return table
        case "positions":
            return Positions(*shape)
        case "self_attention":
            return CausalSelfAttention(shape[-1], keys["heads"])
        case "lstm":
            return LastStep(shape[-1], keys["hidden"], keys["layers"], batch_first=True)
        case "tied_linear":
            return TiedLinear(getattr(around, keys["to"]))
        case "block":
            return network(keys["layers"], shape)
        case "repeat":
            rounds = nn.Sequential()
            for index in range(keys["times"]):
                rounds.add_module(str(index + 1), network(keys["layers"], shape))
            return rounds
        case "residual":
            return Residual(network(keys["layers"], shape), network(keys.get("shortcut", []), shape))


def network(layers, shape):
    """The layers on samples of `shape`, one after the other, under the names that the program gives them."""
    modules, counts = nn.Sequential(), {}
    sample = torch.zeros(2, *shape, dtype=torch.long if layers and layers[0]["kind"] == "embedding" else None)
    for entry in layers:
        kind = entry["kind"]
        counts[kind] = counts.get(kind, 0) + 1
        made = module(entry, sample.shape[1:], modules)
        modules.add_module(entry.get("name", f"{kind}_{counts[kind]}"), made)
        with torch.no_grad():
            sample = copy.deepcopy(made)(sample)  # a copy's running statistics are moved by this
    return modules


# What is trained on: made here, written as a file that the program reads, and kept as tensors.


def images(folder, samples, shape):
    """Noisy pictures of ten patterns."""
    random = numpy.random.default_rng(1)
    labels = numpy.arange(samples) * 7 % 10
    patterns = random.standard_normal((10, *shape))
    values = 0.3 * patterns[labels] + random.standard_normal((samples, *shape))
    return table(folder, values.astype(numpy.float32), labels)


def walks(folder, samples, shape):
    """Random walks in several dimensions, of classes that drift in ten directions."""
    random = numpy.random.default_rng(2)
    labels = numpy.arange(samples) * 3 % 10
    drift = random.standard_normal((10, 1, shape[1]))
    steps = 0.1 * drift[labels] + 0.3 * random.standard_normal((samples, *shape))
    return table(folder, steps.cumsum(1).astype(numpy.float32), labels)


def table(folder, values, labels):
    """A CSV file, in which nine digits give each f32 exactly."""
    rows = numpy.column_stack([values.reshape(len(values), -1), labels])
    numpy.savetxt(folder / "data.csv", rows, delimiter=",", fmt=["%.9g"] * (rows.shape[1] - 1) + ["%d"])
    keys = {"format": "csv", "path": "data.csv", "header": False, "shape": list(values.shape[1:])}
    return keys, torch.from_numpy(values), torch.from_numpy(labels)


def text(folder, samples, shape):
    """Words out of a list of forty, cut into windows of bytes; the target is the next byte at each place."""
    random = numpy.random.default_rng(3)
    words = ["".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), random.integers(2, 8))) for _ in range(40)]
    [length] = shape
    bytes_ = " ".join(random.choice(words, samples * length)).encode()[: samples * length + 1]
    (folder / "data.txt").write_bytes(bytes_)
    tokens = torch.tensor(list(bytes_))
    inputs, targets = (tokens[i : i + samples * length].reshape(samples, length) for i in (0, 1))
    return {"format": "text", "path": "data.txt", "length": length}, inputs, targets


@dataclass
class Case:
    """A network, what it is trained on and how."""

    title: str
    layers: callable
    data: callable
    shape: list
    batch: int
    rule: type
    settings: dict  # PyTorch's names
    keys: dict = field(default_factory=dict)  # the run file's, where they are others

    def optimizer(self, parameters):
        return self.rule(parameters, **self.settings)

    def optimizer_section(self):
        return {"kind": self.rule.__name__.lower(), "decay_rank_1": True, **self.settings}


NESTEROV = {"lr": 0.002, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}

CASES = {
    "mlp": Case(
        "MLP 64-128-64-10, SGD with momentum",
        lambda _: [layer("linear", out=128), layer("relu"), layer("linear", out=64), layer("relu"), layer("linear", out=10)],
        images, [64], 32, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9},
    ),
    "cnn": Case(
        "CNN with batch norm, SGD with Nesterov momentum and weight decay",
        lambda batch: cnn(layer("batch_norm", group=batch)),
        images, [3, 16, 16], 32, torch.optim.SGD, NESTEROV,
    ),
    "resnet20": Case(
        "ResNet-20 with batch norm and SiLU, SGD with Nesterov momentum and weight decay",
        lambda batch: resnet20(layer("batch_norm", group=batch)),
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


# What the optimizers' first state is called, in PyTorch and here.
MOMENT = {
    torch.optim.SGD: ("momentum_buffer", "momentum"),
    torch.optim.Adam: ("exp_avg", "exp_avg"),
    torch.optim.AdamW: ("exp_avg", "exp_avg"),
}


@dataclass
class Step:
    """The loss of a step's batch, and what its update left: tensors by name."""

    loss: float
    weights: dict
    moments: dict  # momentum, or Adam's first moment: at first the gradient, up to a factor and SGD's weight decay


def weights_of(model):
    """All parameters and running statistics, as the program means them."""
    norms = {name: part for name, part in model.named_modules() if isinstance(part, BatchNorm)}
    found = {name: exact(value) for name, value in model.state_dict().items()}
    for name, norm in norms.items():
        found[f"{name}.running_var"] = exact(norm.biased_running_var())
        del found[f"{name}.num_batches_tracked"]
    return found


def exact(tensor):
    """A copy in f64."""
    return tensor.detach().to(torch.float64, copy=True)


def train_torch(case, model, inputs, targets):
    """Every [`Step`] in PyTorch."""
    optimizer = case.optimizer(model.parameters())
    for x, target in zip(inputs.split(case.batch), targets.split(case.batch)):
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        states = {name: optimizer.state[value] for name, value in model.named_parameters()}
        moments = {name: exact(state[MOMENT[case.rule][0]]) for name, state in states.items()}
        yield Step(loss.item(), weights_of(model), moments)


def train_here(options, case, folder, sections):
    """Every [`Step`] in the program."""
    (folder / "run.toml").write_text(run_file(sections))
    command = [*shlex.split(options.program), "train", str(folder / "run.toml"), "--init", str(folder / "init.safetensors")]
    command += ["--adapters", options.adapter, "--set", f"output.dir={toml(str(folder / 'runs'))}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{ran.stdout}{ran.stderr}")
    run = max((folder / "runs").iterdir(), key=lambda run: run.stat().st_mtime)
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        checkpoint = run / "checkpoints" / f"step-{record['step'] + 1:08}"
        weights = {name: exact(value) for name, value in load_file(checkpoint / "weights.safetensors").items()}
        suffix = f".{MOMENT[case.rule][1]}"
        state = load_file(checkpoint / "optimizer.safetensors").items()
        moments = {name.removesuffix(suffix): exact(value) for name, value in state if name.endswith(suffix)}
        yield Step(record["loss"], weights, moments)


def relative(a, b):
    """The largest difference of two tensors' elements, divided by the largest element."""
    return ((a - b).abs().max() / b.abs().max()).item()


def worst(tensors, expected):
    """The largest relative difference of a tensor, and its name."""
    return max((relative(known_part(name, tensors[name]), known_part(name, to)), name) for name, to in expected.items())


def compare(step, expected):
    """Relative differences: of the loss, of the worst tensor of weights (with its name), of that of moments."""
    loss = abs(step.loss - expected.loss) / abs(expected.loss)
    weights, name = worst(step.weights, expected.weights)
    return [loss, weights, worst(step.moments, expected.moments)[0]], name


def known_part(name, value):
    """Attention does not depend on the keys' biases: their gradient is what rounding leaves of 0, and so are Adam's steps."""
    if not name.endswith("in_proj_bias"):
        return value
    queries, _, values = value.chunk(3)
    return torch.cat([queries, values])


def run_case(options, case):
    """Prints the table of a network; whether its losses agree."""
    torch.manual_seed(4)
    samples = options.steps * case.batch
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary) / case.title.split()[0].strip(",")
        folder.mkdir(parents=True)
        data, inputs, targets = case.data(folder, samples, case.shape)
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
        exact_model = copy.deepcopy(model).double()
        exact_inputs = exact(inputs) if inputs.is_floating_point() else inputs
        steps = zip(
            train_here(options, case, folder, sections),
            train_torch(case, model, inputs, targets),
            train_torch(case, exact_model, exact_inputs, targets),
            strict=True,
        )
        rows = [(theirs.loss, *compare(here, theirs), compare(theirs, exact)[0]) for here, theirs, exact in steps]
    return report(case, rows)


def report(case, rows):
    """Prints them; whether the losses agree."""
    print(f"### {case.title}\n")
    print("| step | loss | Δ loss | Δ weights | Δ momentum | f64: Δ loss | Δ weights | Δ momentum |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")

    def line(step, loss, differences):
        print(f"| {step} | {loss} | " + " | ".join(f"{value:.1e}" for value in differences) + " |")

    for step in [step for step in SHOWN if step <= len(rows)]:
        loss, ours, _, rounding = rows[step - 1]
        line(step, f"{loss:.4f}", ours + rounding)
    line("most", "", [max(values) for values in zip(*(ours + rounding for _, ours, _, rounding in rows))])
    _, last, farthest, _ = rows[-1]
    print(f"\nWeights farthest apart at the end: `{farthest}`.\n", flush=True)
    agree = rows[0][1][0] <= FIRST_LOSS and last[0] <= LAST_LOSS
    if not agree:
        print(f"**The losses differ by more than {FIRST_LOSS} at the first step or {LAST_LOSS} at the last.**\n", flush=True)
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/release/everygpu", help="the program, or a command that ends in it")
    parser.add_argument("--adapter", default="auto", help="as --adapters of the program")
    parser.add_argument("--models", default=",".join(CASES), help="separated by commas; all by default")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--keep", metavar="FOLDER", help="leaves data, run files and run folders there")
    parser.add_argument("--setup", metavar="FOLDER", help="makes a virtual environment there, and goes on in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    names = options.models.split(",")
    if not set(names) <= set(CASES):
        parser.error(f"--models: expected some of {', '.join(CASES)}, got {options.models}")
    agree = [run_case(options, CASES[name]) for name in names]
    sys.exit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
