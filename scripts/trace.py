#!/usr/bin/env python3
"""Reads what `everygpu train --trace FILE` has written.

    scripts/trace.py outside FILE [--skip 20]
        How much of a step passes outside of kernels, by device: from one step's begin to the next one's (so what is
        between two steps counts), the time in which no kernel of the device ran. Medians over the steps, without the
        first `--skip`.

    scripts/trace.py picture FILE [--step 20] [--steps 3] > FILE.svg
        A timeline of some steps as an SVG.
"""

import argparse
import html
import json
import statistics
import sys

KERNELS = " kernels"
# Name of a span: what it is, in the picture's legend, and its colours on light and dark ground.
KINDS = {
    "step": ("whole step", "#c9ced6", "#4a515c"),
    "gradients": ("gradients", "#9ecae1", "#2c5a7a"),
    "micro-batch": ("micro-batch", "#1f77b4", "#5aa9e0"),
    "update": ("update", "#d62728", "#ff7f7f"),
    "receive gradients": ("receive gradients", "#e6ab02", "#f0c94d"),
    "receive weights": ("receive weights", "#66a61e", "#9bd65b"),
    "sum": ("sum on the host", "#7b3fa0", "#c795e8"),
    "gather": ("loader", "#8c6d4f", "#c7a789"),
    "wait for the loader": ("wait for the loader", "#e377c2", "#f5a8dc"),
    "prepare": ("compile", "#7f7f7f", "#a8a8a8"),
    "evaluate": ("evaluate", "#b3b36b", "#84843c"),
}
OTHER = ("other", "#555555", "#cccccc")


def load(path):
    """The spans of a trace by track, each (start, end, name, rows) in milliseconds and in order."""
    with open(path) as file:
        events = json.load(file)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    tracks = {name: [] for name in names.values()}
    for event in (e for e in events if e["ph"] == "X"):
        begin = event["ts"] / 1e3
        span = (begin, begin + event["dur"] / 1e3, event["name"], event["args"].get("rows"))
        tracks[names[event["tid"]]].append(span)
    for spans in tracks.values():
        spans.sort()
    return tracks


def covered(spans, begin, end):
    """Milliseconds between `begin` and `end` in which one of `spans` is."""
    total, at = 0.0, begin
    for start, stop, *_ in spans:
        start, stop = max(start, at), min(stop, end)
        if stop > start:
            total, at = total + stop - start, stop
    return total


def outside(options):
    tracks = load(options.file)
    steps = tracks["steps"][options.skip :]
    periods = [(begin, after) for (begin, *_), (after, *_) in zip(steps, steps[1:])]
    print("| device | step | in kernels | outside | of the step |\n| --- | ---: | ---: | ---: | ---: |")
    for name, spans in ((n, s) for n, s in tracks.items() if n.endswith(KERNELS)):
        found = [(end - begin, covered(spans, begin, end)) for begin, end in periods]
        step = statistics.median(whole for whole, _ in found)
        inside = statistics.median(inside for _, inside in found)
        rest = statistics.median(whole - inside for whole, inside in found)
        part = statistics.median(1 - inside / whole for whole, inside in found)
        device = name.removesuffix(KERNELS)
        print(f"| {device} | {step:.2f} ms | {inside:.2f} ms | {rest:.2f} ms | {100 * part:.1f}% |")
    print(f"\n{len(periods)} steps", file=sys.stderr)


LEFT, RIGHT, TOP, ROW, WIDTH = 20, 20, 74, 44, 1100


def picture(options):
    tracks = load(options.file)
    steps = tracks["steps"]
    chosen = steps[options.step : options.step + options.steps]
    if len(chosen) < options.steps:
        sys.exit(f"{options.file} has {len(steps)} steps, asked for {options.steps} from {options.step} on")
    begin, end = chosen[0][0], chosen[-1][1]
    begin, end = begin - 0.02 * (end - begin), end + 0.01 * (end - begin)
    shown = {name: [s for s in spans if s[1] > begin and s[0] < end] for name, spans in tracks.items()}
    shown = {name: spans for name, spans in sorted(shown.items(), key=order) if spans}
    x = lambda at: LEFT + (min(max(at, begin), end) - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)
    bottom = TOP + ROW * len(shown)
    kinds = [kind for kind in KINDS if any(s[2] == kind for spans in shown.values() for s in spans)]
    classes = {kind: f"k{index}" for index, kind in enumerate(kinds)}
    colours = lambda ground: "".join(f".k{i}{{fill:{KINDS[kind][ground]}}}" for i, kind in enumerate(kinds))
    other = lambda ground: f".other{{fill:{OTHER[ground]}}}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" '
        'aria-label="Timeline of some steps">',
        "<style>text{font:12px system-ui,sans-serif;fill:#222}.ground{fill:#fff}.grid{stroke:#ddd}"
        + colours(1) + other(1)
        + "@media (prefers-color-scheme:dark){text{fill:#ddd}.ground{fill:#16191d}.grid{stroke:#333}"
        + colours(2) + other(2) + "}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{bottom + 40}"/>',
    ]
    at = LEFT
    for kind in kinds + ([None] if any(s[2] not in KINDS for spans in shown.values() for s in spans) else []):
        word = KINDS[kind][0] if kind else OTHER[0]
        out.append(f'<rect class="{classes.get(kind, "other")}" x="{at}" y="14" width="12" height="12" rx="2"/>')
        out.append(f'<text x="{at + 17}" y="24">{html.escape(word)}</text>')
        at += 38 + 6.4 * len(word)
    tick = nice((end - begin) / 10)
    for index in range(int((end - chosen[0][0]) / tick) + 1):
        place = x(chosen[0][0] + index * tick)
        out.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP - 22}" y2="{bottom}"/>')
        unit = " ms" if index == 0 else ""
        out.append(f'<text x="{place:.1f}" y="{TOP - 28}" text-anchor="middle">{index * tick:g}{unit}</text>')
    for row, (name, spans) in enumerate(shown.items()):
        y = TOP + ROW * row
        out.append(f'<text x="{LEFT}" y="{y + 10}">{html.escape(name)}</text>')
        for start, stop, kind, rows in spans:
            width = max(x(stop) - x(start), 1.2)
            about = f"{kind}, {stop - start:.2f} ms" + (f", {rows} rows" if rows is not None else "")
            out.append(
                f'<rect class="{classes.get(kind, "other")}" x="{x(start):.1f}" y="{y + 16}" '
                f'width="{width:.1f}" height="20" rx="1.5">'
                f"<title>{html.escape(about)}</title></rect>"
            )
    print("\n".join(out + ["</svg>"]))


def order(item):
    """Steps first, then each device's threads and kernels, then the host's other threads."""
    name = item[0]
    return (name != "steps", not name.startswith("adapter"), name)


def nice(length):
    """The round number of 1, 2 or 5 times a power of ten that is next above `length`."""
    power = 10.0 ** len(str(int(length * 1000)))
    return next(f * power / 1e4 for f in (1, 2, 5, 10, 20, 50, 100) if f * power / 1e4 >= length)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("outside")
    command.add_argument("file")
    command.add_argument("--skip", type=int, default=20)
    command.set_defaults(run=outside)
    command = commands.add_parser("picture")
    command.add_argument("file")
    command.add_argument("--step", type=int, default=20)
    command.add_argument("--steps", type=int, default=3)
    command.set_defaults(run=picture)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
