"""What parity.py trains on: made here, written as a file that the program reads, and kept as tensors."""

import numpy
import torch


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
