"""step.py MODEL STEPS: times a training step of `mlp`, `cnn` or `gpt` with PyTorch on the CPU, on random data. Prints
PyTorch's version and threads, the number of parameters, and the median in milliseconds."""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WARM_UP = 5


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, width, heads, depth):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        return self.head(self.norm(self.blocks(x)))


def network(name):
    """The network, a batch for it and the targets."""
    if name == "gpt":
        stream = torch.randint(256, (8 * 128 + 1,))
        return Gpt(256, 128, 128, 4, 4), stream[:-1].view(8, 128), stream[1:]
    if name == "mlp":
        layers = [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        rows = 256
    else:
        convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
        layers, rows = [*convolutions, nn.Flatten(), nn.Linear(9216, 10)], 64
    return nn.Sequential(*layers), torch.rand(rows, 1, 28, 28), torch.randint(10, (rows,))


def main():
    name, steps = sys.argv[1], int(sys.argv[2])
    model, inputs, targets = network(name)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seconds = []
    for _ in range(WARM_UP + steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        logits = model(inputs)
        loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    version = torch.__version__.split("+")[0]
    print(f"PyTorch {version} CPU, {torch.get_num_threads()} threads")
    print(parameters)
    print(1e3 * statistics.median(seconds[WARM_UP:]))


if __name__ == "__main__":
    main()
