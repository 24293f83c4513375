#!/usr/bin/env python3
"""Measures how well unequal devices work together: samples/s of each alone, and of all with the even and the speed
split.

    scripts/throughput.py RUN.toml --adapters 0,1 [--program target/release/everygpu] [--epochs 4] [--rounds 3]
                          [--replicas N] [--set KEY=VALUE ...]

Each setting trains in a process of its own, alternately, `--rounds` times; a run's figure is that of the median step of
its second half, so that neither compilation nor the search for the split counts. Environment variables reach the
drivers, for example LP_NUM_THREADS for Mesa's software driver. Prints a Markdown table of medians.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile


def measure(options, adapters, split, replicas):
    """Samples/s and the last shards of one training."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "train", options.run, "--adapters", adapters, "--replicas", str(replicas)]
        settings = [f"output.dir={folder}", f'train.split="{split}"', "train.keep_best=0"]
        settings += [f"train.epochs={options.epochs}"]
        for setting in settings + options.set:
            command += ["--set", setting]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{ran.stderr}")
        [metrics] = pathlib.Path(folder).glob("*/metrics.jsonl")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    full = max(line["samples"] for line in lines)
    steps = [line for line in lines if line["samples"] == full]
    steps = steps[len(steps) // 2 :]
    seconds = statistics.median(line["seconds"]["step"] for line in steps)
    return full / seconds, steps[-1]["shards"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--program", default="target/release/everygpu")
    parser.add_argument("--adapters", required=True, help="indices, separated by commas")
    parser.add_argument("--replicas", type=int, default=1, help="logical devices an adapter, where all work together")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()

    alone = options.adapters.split(",")
    settings = [(f"adapter {index} alone", index, "even", 1) for index in alone]
    settings += [(f"all, {split} split", options.adapters, split, options.replicas) for split in ("even", "speed")]
    found = {name: [] for name, *_ in settings}
    shards = {}
    for _ in range(options.rounds):
        for name, *setting in settings:
            speed, shards[name] = measure(options, *setting)
            found[name].append(speed)
    medians = {name: statistics.median(speeds) for name, speeds in found.items()}
    total = options.replicas * sum(medians[f"adapter {index} alone"] for index in alone)
    print("| setting | samples/s, median | least to most | of the sum of speeds | rows |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name, speed in medians.items():
        least, most = min(found[name]), max(found[name])
        rows = "+".join(map(str, shards[name]))
        print(f"| {name} | {speed:.0f} | {least:.0f}–{most:.0f} | {100 * speed / total:.0f}% | {rows} |")
    print(f"| sum of speeds | {total:.0f} | | 100% | |")


if __name__ == "__main__":
    main()
