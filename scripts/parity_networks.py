"""The networks of parity.py: as the run file has them, and with PyTorch's own modules for each kind of layer."""

import copy

import torch
from torch import nn


def layer(kind, **keys):
    return {"kind": kind, **keys}


def conv(out, kernel=3, stride=1):
    return layer("conv2d", out=out, kernel=kernel, stride=stride, padding=kernel // 2, bias=False)


def basic_block(norm, activation, width, stride=1):
    """The residual block of a ResNet, with a 1×1 convolution where the shape changes."""
    body = [conv(width, stride=stride), norm, activation, conv(width), norm]
    shortcut = [conv(width, 1, stride), norm] if stride > 1 else []
    return [layer("residual", layers=body, shortcut=shortcut), activation]


def stage(norm, activation, width):
    """Half the height and width, and three blocks."""
    rest = layer("repeat", times=2, layers=basic_block(norm, activation, width))
    return [layer("block", layers=basic_block(norm, activation, width, 2)), rest]


def resnet20(norm, activation):
    first = [conv(16), norm, activation, layer("repeat", times=3, layers=basic_block(norm, activation, 16))]
    rest = stage(norm, activation, 32) + stage(norm, activation, 64)
    return first + rest + [layer("global_avg_pool"), layer("linear", out=10)]


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
    """Its `running_var` is of the biased variance, as in the program."""

    def forward(self, x):
        before = self.running_var.clone()
        y = super().forward(x)
        share = self.running_var - (1 - self.momentum) * before  # of the batch: unbiased
        self.running_var = self.running_var - share * (x.shape[1] / x.numel())
        return y


class Sided(nn.Module):
    """A layer whose gradient jumps: each element is on one of two sides. Which one it took is kept as `sides`; with
    `told` it takes that, whatever its input says."""

    told = None

    def forward(self, x):
        self.input = x.detach()
        self.sides = self.own_sides(x) if self.told is None else self.told
        return self.take(x, self.sides)


class Relu(Sided):
    """Sides: whether an element passes."""

    def own_sides(self, x):
        return x > 0

    def take(self, x, passes):
        return torch.where(passes, x, 0)

    def other_sides(self):
        """How far each element is from its other side, and that side."""
        return self.input.abs(), ~self.own_sides(self.input)


class MaxPool(Sided):
    """Sides: which element of a window passes, as its index in the sample's channel."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def own_sides(self, x):
        return nn.functional.max_pool2d(x, self.kernel, return_indices=True)[1]

    def take(self, x, largest):
        return x.flatten(2).gather(2, largest.flatten(2)).view(largest.shape)

    def other_sides(self):
        """How much larger than the second element the largest is, and the second. Where ReLU left no second element
        above 0, there is no other side."""
        largest = self.own_sides(self.input)
        rest = self.input.flatten(2).scatter(2, largest.flatten(2), -torch.inf).view(self.input.shape)
        second = self.own_sides(rest)
        value = self.take(rest, second)
        return torch.where(value > 0, self.take(self.input, largest) - value, torch.inf), second


def sided(model):
    """The model's layers with sides, by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, Sided)}


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
            return Relu()
        case "silu":
            return nn.SiLU()
        case "gelu_tanh":
            return nn.GELU(approximate="tanh")
        case "max_pool2d":
            return MaxPool(keys["kernel"])
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
