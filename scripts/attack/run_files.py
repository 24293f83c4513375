"""run_files.py BINARY: throws hostile run files at `everygpu plan`: each is planned or refused, with one readable
message.

Run files of each kind below (one function a kind) with random sizes. A case fails when the program is ended by a signal
(a crash, or no memory), takes more than a second of processor time (PROCESSOR_SECONDS in the environment: a build
without optimization needs more) or 1,024 MiB of address space (MEBIBYTES), ends with another code than 0 or 1, panics,
or prints a control character or more than 16 KiB of messages.
"""

import os
import re
import resource
import subprocess
import time
from pathlib import Path

import common
from common import Finding

LIMITS = float(os.environ.get("PROCESSOR_SECONDS", 1)), int(os.environ.get("MEBIBYTES", 1024))

GOOD = '''[data]
format = "digits"
[model]
layers = ["flatten", { kind = "linear", out = 10 }]
'''
BIG = [0, 1, 2, 3, 7, 255, 257, 1000, 65535, 65537, 10**6, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62,
       2**63 - 1, 2**63, 2**64, -1, -2**63, 10**30]
WORDS = ["", " ", "a.b", "\u001b[31mred\u001b[0m", "\u0007", "\u202eevil", "\u009b1m", "\n", "x" * 100, "x" * 1_000_000,
         "ü" * 70000, "C:\\\\temp", "'", "$x", "$", "../../..", "/dev/null", "/dev/zero", "none", "auto", "\ufeff",
         "\u0000"]


def text(word):
    """`word` as a TOML string."""
    out = []
    for c in word:
        if c in '"\\':
            out.append("\\" + c)
        elif ord(c) < 32 or ord(c) in range(127, 160):
            out.append(f"\\u{ord(c):04x}")
        else:
            out.append(c)
    return '"' + "".join(out) + '"'


def size(rng):
    """A number of repetitions, small or large."""
    return int(10 ** rng.uniform(0, 5))


def model(layers, data='format = "digits"', rest=""):
    return f"[data]\n{data}\n[model]\nlayers = [{layers}]\n{rest}"


HEAD = '"flatten", { kind = "linear", out = 10 }'


def doubling_values(rng):
    """Blocks that hand on twice what they were given."""
    levels, width = rng.randint(2, 31), rng.choice([1, 2, 3, 10])
    doubled = ", ".join(["\"$x\""] * 2)
    blocks = [f'[model.blocks.b{i}]\nlayers = [{{ kind = "block", use = "b{i + 1}", with = {{ x = [{doubled}] }} }}]'
              for i in range(levels)]
    blocks.append(f'[model.blocks.b{levels}]\nlayers = [{{ kind = "reshape", shape = "$x" }}]')
    ones = ", ".join(["1"] * width)
    return model(f'{{ kind = "block", use = "b0", with = {{ x = [{ones}] }} }}, {HEAD}', rest="\n".join(blocks))


def doubling_layers(rng):
    """Blocks that use the next one several times."""
    levels, times = rng.randint(1, 31), rng.randint(1, 12)
    blocks = [f'[model.blocks.b{i}]\nlayers = [' + ", ".join([f'{{ kind = "block", use = "b{i + 1}" }}'] * times) + "]"
              for i in range(levels)]
    blocks.append(f'[model.blocks.b{levels}]\nlayers = ["relu"]')
    return model(f'{{ kind = "block", use = "b0" }}, {HEAD}', rest="\n".join(blocks))


def heavy_block(rng):
    """A block with much in it, used often."""
    much = ", ".join(["1"] * size(rng))
    uses = ", ".join(['{ kind = "block", use = "b" }'] * min(size(rng), 20000))
    body = rng.choice([f'layers = [{{ kind = "reshape", shape = [{much}] }}]',
                       f'layers = [{{ kind = "reshape", shape = "$x" }}]\ndefaults = {{ x = [{much}] }}',
                       f'layers = ["relu"]\ndefaults = {{ x = [{much}] }}',
                       'layers = [{ kind = "linear", out = 3, name = ' + text("n" * len(much)) + " }]"])
    return model(f"{uses}, {HEAD}", rest=f"[model.blocks.b]\n{body}")


def many_parameters(rng):
    """A block with many parameters, each given a value."""
    count = size(rng)
    names = [f"p{i}" for i in range(count)]
    shape = ", ".join(f'"${name}"' for name in names)
    given = ", ".join(f"{name} = 1" for name in names)
    return model(f'{{ kind = "block", use = "b", with = {{ {given} }} }}, {HEAD}',
                 rest=f'[model.blocks.b]\nlayers = [{{ kind = "reshape", shape = [{shape}] }}]')


def many_blocks(rng):
    """Many blocks, each used once, in a row or one in the other."""
    count = size(rng)
    if rng.random() < 0.5:
        uses = ", ".join(f'{{ kind = "block", use = "b{i}" }}' for i in range(count))
        body = ['layers = ["relu"]'] * count
    else:
        uses = '{ kind = "block", use = "b0" }'
        body = [f'layers = [{{ kind = "block", use = "b{i + 1}" }}]' for i in range(count - 1)] + ['layers = ["relu"]']
    return model(f"{uses}, {HEAD}", rest="\n".join(f"[model.blocks.b{i}]\n{b}" for i, b in enumerate(body)))


def many_keys(rng):
    """Many keys, lines or comments."""
    count = size(rng)
    kind = rng.randrange(5)
    if kind == 0:
        return GOOD + "[train]\n" + "\n".join(f"k{i} = {i}" for i in range(count))
    if kind == 1:
        return GOOD + "\n" * count * 10
    if kind == 2:
        return GOOD + "\n".join(f"[t{i}]" for i in range(count))
    if kind == 3:
        return GOOD + "\n".join(f'[[optimizer.groups]]\nmatch = "{"*a" * rng.randint(1, 3)}{i}"' for i in range(count))
    return GOOD + "#" * count * 10 + "\n" + "[train]\nsplit = [" + ",\n".join(["1"] * count) + "]"


def patterns(rng):
    """Patterns that match in many ways."""
    word = rng.choice(["*", "*a", "*.", "**", "*i*n", "*_"]) * rng.choice([1, 3, 20, 1000, 30000])
    names = text(rng.choice(["linear", "i" * 30000, "in" * 15000, "_" * 5000]))
    return (model(f'"flatten", {{ kind = "linear", out = 10, name = {names} }}')
            + f"[[optimizer.groups]]\nmatch = {text(word + rng.choice(['', 'z', 'weight']))}\n")


def nesting(rng):
    """Lists, tables, dotted keys, blocks and residuals one in the other."""
    deep = size(rng)
    kind = rng.randrange(7)
    if kind == 0:
        return GOOD + "[train]\nsplit = " + "[" * deep + "1" + "]" * deep
    if kind == 1:
        return GOOD + "[train]\nsplit = " + "{ a = " * deep + "1" + " }" * deep
    if kind == 2:
        return GOOD + ".".join(["a"] * deep) + " = 1"
    if kind == 3:
        return GOOD + "[" + ".".join(["a"] * deep) + "]"
    opening, closing = rng.choice([('{ kind = "block", layers = [', "] }"), ('{ kind = "residual", layers = [', "] }"),
                                   ('{ kind = "repeat", times = 1, layers = [', "] }")])
    return model(opening * deep + '"relu"' + closing * deep + f", {HEAD}")


def repeats(rng):
    """Repeats of repeats."""
    body = rng.choice(['"relu"', '{ kind = "linear", out = 10 }', '"batch_norm"',
                       '{ kind = "dropout", probability = 0.5 }',
                       '{ kind = "residual", layers = [{ kind = "linear", out = 64 }] }',
                       '{ kind = "lstm", hidden = 4, layers = 100 }'])
    for _ in range(rng.randint(1, 5)):
        body = f'{{ kind = "repeat", times = {rng.choice([1, 10, 21, 100, 1000, 1001, 2**40])}, layers = [{body}] }}'
    return model(f'"flatten", {body}, {{ kind = "linear", out = 10 }}')


def many_layers(rng):
    """Many layers, with names or without."""
    count = min(size(rng), 30000)
    kind = rng.choice(['"relu"', '{ kind = "linear", out = 2 }', '"layer_norm"', '"softmax"', '"flatten"',
                       '{ kind = "linear", out = 2, name = "n#" }', '{ kind = "conv2d", out = 1, kernel = 1 }',
                       '{ kind = "max_pool2d", kernel = 1 }'])
    return model(", ".join(kind.replace("#", str(i)) for i in range(count)) + f", {HEAD}")


def images(rng):
    """Layers over images with absurd settings."""
    n = lambda: rng.choice(BIG + [1, 2, 3, 4] * 6)
    pair = lambda: rng.choice([str(n()), f"[{n()}, {n()}]"])
    window = lambda: f"kernel = {pair()}, stride = {pair()}, padding = {pair()}"
    kinds = [lambda: f'kind = "conv2d", out = {n()}, {window()}, dilation = {pair()}, groups = {n()}',
             lambda: f'kind = "conv_transpose2d", out = {n()}, {window()}, output_padding = {pair()}, groups = {n()}',
             lambda: f'kind = "max_pool2d", {window()}', lambda: f'kind = "avg_pool2d", {window()}',
             lambda: f'kind = "adaptive_avg_pool2d", size = {pair()}',
             lambda: f'kind = "upsample", scale = {pair()}, mode = "{rng.choice(["nearest", "bilinear"])}"',
             lambda: f'kind = "upsample", size = {pair()}, mode = "{rng.choice(["nearest", "bilinear"])}"',
             lambda: f'kind = "group_norm", groups = {n()}', lambda: f'kind = "batch_norm", group = {n()}',
             lambda: f'kind = "dropout", probability = {rng.choice([0, 0.5, 1, -1, 1e300])}']
    layers = ", ".join("{ " + rng.choice(kinds)() + " }" for _ in range(rng.randint(1, 4)))
    padding = f"padding = {pair()}" if rng.random() < 0.4 else ""
    rest = f"[train]\nbatch = {n()}\naccumulate = {n()}\nmicro_batch = {n()}\n" if rng.random() < 0.4 else ""
    return model(f"{layers}, {HEAD}", f'format = "digits"\n{padding}', rest)


def sequences(rng):
    """Layers over sequences with absurd settings."""
    n = lambda: rng.choice(BIG + [1, 2, 4, 8, 64] * 6)
    flag = lambda: rng.choice(["true", "false"])
    rotary = lambda: rng.choice(["10000", '"none"'])
    window = lambda: f"kernel = {n()}, stride = {n()}, padding = {n()}, dilation = {n()}"
    kinds = [lambda: f'kind = "self_attention", heads = {n()}, causal = {flag()}, rotary = {rotary()}',
             lambda: f'kind = "lstm", hidden = {n()}, layers = {n()}, sequence = {flag()}',
             lambda: f'kind = "gru", hidden = {n()}, sequence = true', lambda: 'kind = "positions"',
             lambda: f'kind = "conv1d", out = {n()}, {window()}, groups = {n()}', lambda: 'kind = "mean_positions"',
             lambda: 'kind = "layer_norm"', lambda: f'kind = "linear", out = {n()}',
             lambda: f'kind = "embedding", vocabulary = {n()}, width = {n()}', lambda: 'kind = "tied_linear", to = "e"']
    layers = ", ".join("{ " + rng.choice(kinds)() + " }" for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.5:
        data = f'format = "text"\npath = "missing.txt"\nlength = {n()}\nstride = {n()}'
        first = f'{{ kind = "embedding", name = "e", vocabulary = 256, width = {n()} }}'
        return model(f'{first}, {layers}, {{ kind = "linear", out = 256 }}', data)
    data = f'format = "csv"\npath = "missing.csv"\nshape = [{n()}, {n()}]'
    return model(f"{layers}, {HEAD}", data, "").replace("[model]", f"[model]\ninput = [{n()}, {n()}]")


def padding(rng):
    """Images that a border makes large."""
    a = lambda: rng.choice([0, 1, 10, 100, 300, 1000, 3000, 2**31, 2**62])
    border = rng.choice([str(a()), f"[{a()}, {a()}]", f"[{a()}, {a()}, {a()}, {a()}]"])
    return model(HEAD, f'format = "digits"\npadding = {border}')


def lists(rng):
    """Lists of weights that are long or odd."""
    count = size(rng)
    weights = ", ".join(["1.0"] * count)
    loss = rng.choice([f'{{ kind = "cross-entropy", class_weights = [{weights}] }}',
                       f'{{ kind = "bce", pos_weight = [{weights}] }}',
                       f'{{ kind = "cross-entropy", ignore_index = {rng.choice(BIG)} }}'])
    ones = ", ".join(["1"] * count)
    key = rng.choice([f"loss = {loss}", f"input = [{ones}]", f"input = [{rng.choice(BIG)}, {rng.choice(BIG)}]"])
    shape = rng.choice(["", f"shape = [{', '.join([str(rng.choice(BIG))] * rng.randint(1, 5))}]"])
    return f'[data]\nformat = "csv"\npath = "missing.csv"\n{shape}\n[model]\n{key}\nlayers = [{HEAD}]\n'


def words(rng):
    """Strange text where a name, a word, a path or a key is expected."""
    w = lambda: text(rng.choice(WORDS))
    places = [lambda: GOOD + f"[train]\n{w()} = 1", lambda: GOOD + f"[{w()}]", lambda: GOOD.replace('"digits"', w()),
              lambda: GOOD + f"[train]\nbatch = {w()}", lambda: GOOD + f"[optimizer]\nkind = {w()}",
              lambda: model(f'"flatten", {{ kind = "linear", out = 10, name = {w()} }}'),
              lambda: model(f'"flatten", {{ kind = {w()}, out = 10 }}'), lambda: model(f"{w()}, {HEAD}"),
              lambda: model(HEAD, f'format = "csv"\npath = {w()}'),
              lambda: model(HEAD, f'format = "mnist"\ndir = {w()}'),
              lambda: model(f'{{ kind = "block", use = {w()} }}, {HEAD}',
                            rest=f'[model.blocks.{w()}]\nlayers = ["relu"]'),
              lambda: model(f'{{ kind = "linear", out = {w()} }}'),
              lambda: GOOD + f"[[optimizer.groups]]\nmatch = {w()}",
              lambda: model(HEAD, f'format = "csv"\npath = "missing.csv"\nlabel = {w()}\ndelimiter = {w()}'),
              lambda: GOOD + f"[devices]\nadapters = {w()}\nmemory_limit = {w()}",
              lambda: GOOD + f'[schedule]\nkind = "cosine"\nwarmup = {w()}', lambda: GOOD + f"\n{rng.choice(WORDS)}\n",
              lambda: model(f'{{ kind = "tied_linear", to = {w()} }}, {HEAD}'),
              lambda: model(f'{{ kind = "block", use = "b", with = {{ {w()} = {w()} }} }}, {HEAD}',
                            rest='[model.blocks.b]\nlayers = ["relu"]')]
    return rng.choice(places)()


def settings(rng):
    """Numbers beyond use in every table."""
    n = lambda: rng.choice(BIG + ["0.5", "1e300", "-1e-300", "nan", "inf", "[]", "{}", '"x"', "true", "1979-05-27"])
    keys = {"train": ["epochs", "batch", "accumulate", "micro_batch", "seed", "clip_norm", "split", "checkpoint_every",
                      "keep_last", "nonfinite_limit", "spike_threshold", "spike_warmup", "snapshot_every",
                      "verify_weights_every", "cross_check_every"],
            "optimizer": ["lr", "weight_decay", "betas", "epsilon", "ema_decay", "groups", "kind"],
            "schedule": ["kind", "warmup", "floor", "period", "every", "gamma"],
            "devices": ["replicas", "memory_limit", "hang_timeout", "compile_timeout", "rejoin_after", "adapters"],
            "output": ["dir"], "data": ["padding", "scale", "validation", "stratified", "target"]}
    table = rng.choice(list(keys))
    lines = "\n".join(f"{key} = {n()}" for key in rng.sample(keys[table], min(len(keys[table]), rng.randint(1, 3))))
    if table == "data":
        return model(HEAD, f'format = "digits"\n{lines}')
    return GOOD + f"[{table}]\n{lines}\n"


def mutated(rng, examples):
    """An example with bytes, numbers or lines exchanged."""
    lines = rng.choice(examples).splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        change = rng.randrange(6)
        if change == 0:
            lines[at] = re.sub(r"\d+", lambda _: str(rng.choice(BIG)), lines[at], count=1)
        elif change == 1:
            lines[at] = re.sub(r'"[^"]*"', lambda _: text(rng.choice(WORDS)), lines[at], count=1)
        elif change == 2:
            del lines[at]
        elif change == 3:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif change == 4:
            cut = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + rng.choice('"[]{}=.,#\'\\\x00\x1b\x7f\u2028e-_ ') + lines[at][cut:]
        else:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        if not lines:
            break
    return "\n".join(lines)


KINDS = [doubling_values, doubling_layers, heavy_block, many_parameters, many_blocks, many_keys, patterns, nesting,
         repeats, many_layers, images, images, images, sequences, sequences, sequences, padding, lists, words, words,
         words, settings,
         settings]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def attempt(binary, folder, run, limits):
    """What is wrong with how `everygpu plan` takes the run file in `folder`, if anything; its messages and its exit
    code.
    """
    seconds, mebibytes = limits

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 20, int(seconds) + 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with open(f"{folder}/out", "w+b") as out, open(f"{folder}/err", "w+b") as err:
        last = common.deadline(30 * (seconds + 2))
        child = subprocess.Popen([binary, "plan", run], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 preexec_fn=limit)
        waits = False
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > last:
                waits = True
                child.kill()
            time.sleep(0.002)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        printed, told = (stream.read().decode("utf-8", "surrogateescape") for stream in (out, err))
    used = usage.ru_utime + usage.ru_stime
    wrong = []
    if waits:
        wrong.append("waits for ever")
    if child.returncode not in (0, 1):
        code = child.returncode
        wrong.append(f"ended by signal {-code}" if code < 0 else f"exit code {code}")
    if child.returncode == 1 and not told.startswith(("error: ", "note: ")):
        wrong.append("no message")
    if used > seconds:
        wrong.append(f"{used:.1f} s of processor time")
    if "panicked" in told or "RUST_BACKTRACE" in told:
        wrong.append("a panic")
    if "memory allocation of" in told:
        wrong.append("out of memory")
    for what, stream in (("output", printed), ("messages", told)):
        if found := CONTROL.search(stream):
            wrong.append(f"{ascii(found.group())} in its {what}")
    if len(told) > 16384:
        wrong.append(f"{len(told)} characters of messages")
    return wrong, told, child.returncode


EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))]


def case(binary, folder, numbers):
    kind = numbers.choice([*KINDS, *[mutated] * 4])
    content = mutated(numbers, EXAMPLES) if kind is mutated else kind(numbers)
    (folder / "run.toml").write_text(content, errors="surrogatepass")
    wrong, told, code = attempt(binary, folder, "run.toml", LIMITS)
    if wrong:
        raise Finding(f"{kind.__name__}: {', '.join(wrong)}: {ascii(told[:200])}")
    return "planned" if code == 0 else "refused"


if __name__ == "__main__":
    common.main("run_files", case, __doc__)
