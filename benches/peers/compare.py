"""compare.py: times training steps of everygpu and its peers alternately; see scripts/compare.sh, which calls it."""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
MODELS = {
    "mlp": "mlp 784-512-512-10, batch 256",
    "cnn": "cnn 3×3×32, 3×3×64, 2×2 pool, fc; batch 64",
    "gpt": "gpt 4 blocks, width 128, T 128, 8 samples",
}
IMAGES = 2560
BYTES = 40 * 8 * 128 + 1


def make_data(folder):
    """Random images in MNIST's form and a random text: their content does not change the time."""
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(1)
    for part, count in ("train", IMAGES), ("t10k", 64):
        head = [number.to_bytes(4, "big") for number in (2051, count, 28, 28)]
        images = source.randbytes(count * 28 * 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(b"".join(head) + images)
        head = [number.to_bytes(4, "big") for number in (2049, count)]
        labels = bytes(source.randrange(10) for _ in range(count))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(b"".join(head) + labels)
    (folder / "bytes.txt").write_bytes(bytes(source.randrange(128) for _ in range(BYTES)))


def run(command):
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=REPOSITORY)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def everygpu(program, adapter, model):
    """The median step of the second half of a training, in milliseconds: the first half compiles."""
    with tempfile.TemporaryDirectory() as folder:
        run([program, "train", HERE / f"{model}.toml", "--adapters", adapter, "--set", f"output.dir={folder}"])
        [metrics] = pathlib.Path(folder).glob("*/metrics.jsonl")
        steps = [json.loads(line)["seconds"]["step"] for line in metrics.read_text().splitlines()]
    return "everygpu", 1e3 * statistics.median(steps[len(steps) // 2 :])


def peer(command, model, steps):
    """What a peer's program prints: its name, its number of parameters, the median step in milliseconds."""
    name, parameters, median = run([*command, model, steps]).splitlines()[-3:]
    print(f"{name}, {model}: {parameters} parameters, {float(median):.2f} ms", file=sys.stderr)
    return name, float(median)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--everygpu", required=True, help="the program")
    parser.add_argument("--adapter", default="0", help="the adapter that everygpu trains on")
    parser.add_argument("--burn", help="the program of benches/peers/burn")
    parser.add_argument("--pytorch", action="store_true", help="time PyTorch in this Python, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="steps that a peer times in a round")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()

    make_data(REPOSITORY / "target" / "peers")
    contenders = [lambda model: everygpu(options.everygpu, options.adapter, model)]
    if options.burn:
        contenders.append(lambda model: peer([options.burn], model, options.steps))
    if options.pytorch:
        contenders.append(lambda model: peer([sys.executable, HERE / "step.py"], model, options.steps))
    found = {model: {} for model in options.models}
    for _ in range(options.rounds):
        for model in options.models:
            for contender in contenders:
                name, median = contender(model)
                found[model].setdefault(name, []).append(median)

    names = list(next(iter(found.values())))
    ratios = [f"{name.split()[0]} ÷ everygpu" for name in names[1:]]
    print("| step |", " | ".join([*names, *ratios]), "|")
    print("| --- |", " | ".join("---:" for _ in names + ratios), "|")
    for model, times in found.items():
        medians = [statistics.median(times[name]) for name in names]
        spans = [f"{m:.1f} ms ({min(times[n]):.1f}–{max(times[n]):.1f})" for n, m in zip(names, medians)]
        quotients = [f"{median / medians[0]:.3g}" for median in medians[1:]]
        print(f"| {MODELS[model]} |", " | ".join(spans + quotients), "|")
    print(f"\nMedians of {options.rounds} alternating rounds, least to most in brackets.")


if __name__ == "__main__":
    main()
