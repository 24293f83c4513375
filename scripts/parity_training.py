"""The training of parity.py in PyTorch, step by step, and how far two steps are from each other."""

from dataclasses import dataclass

import torch
from parity_networks import sided
from torch import nn

# The optimizers' states by their names in PyTorch, each with its name here: first momentum, or Adam's first moment.
STATES = {
    torch.optim.SGD: {"momentum_buffer": "momentum"},
    torch.optim.Adam: {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
    torch.optim.AdamW: {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
}


@dataclass
class Case:
    """A network, what it is trained on and how."""

    title: str
    layers: callable
    data: callable
    shape: list
    batch: int
    rule: type
    settings: dict  # with PyTorch's names, which are the run file's

    def optimizer(self, parameters):
        """With every setting as f32 has it, as in the program: 1 − β₂ for β₂ = 0.999 would differ by 1.3e-5 of its
        value.
        """
        optimizer = self.rule(parameters, **self.settings)
        for group in optimizer.param_groups:
            group |= {key: single(value) for key, value in group.items() if key != "params"}
        return optimizer

    def optimizer_section(self):
        return {"kind": self.rule.__name__.lower(), "decay_rank_1": True, **self.settings}


def single(setting):
    """A number, or a tuple of them, rounded to f32."""
    if isinstance(setting, tuple):
        return tuple(map(single, setting))
    return torch.tensor(setting).item() if isinstance(setting, float) else setting


@dataclass
class Step:
    """The loss of a step's batch, and what its update left: tensors by name."""

    loss: float
    weights: dict  # and running statistics
    states: dict  # the optimizer's, by PyTorch's name for the state

    @property
    def moments(self):
        """Momentum, or Adam's first moment: at first the gradient, up to a factor and SGD's weight decay."""
        return next(iter(self.states.values()))


def exact(tensor):
    """A copy in f64."""
    return tensor.detach().to(torch.float64, copy=True)


def advance(case, model, optimizer, x, target):
    """Trains on one batch."""
    loss = nn.functional.cross_entropy(model(x).flatten(0, -2), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept = ((name, value) for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked"))
    weights = {name: exact(value) for name, value in kept}
    parts = dict(model.named_parameters())
    states = {
        key: {name: exact(optimizer.state[part][key]) for name, part in parts.items()} for key in STATES[case.rule]
    }
    return Step(loss.item(), weights, states)


def train_torch(case, model, batches, told=None):
    """Every [`Step`] in PyTorch. `told` has what to [`tell`] the model before each."""
    optimizer = case.optimizer(model.parameters())
    for index, (x, target) in enumerate(batches):
        tell(model, told and told[index])
        yield advance(case, model, optimizer, x, target)


def train_told(case, model, batches, told):
    """Every [`Step`] with these sides, and the distances of all elements that their own values have on the other side.
    """
    steps, distances = [], []
    for step in train_torch(case, model, batches, told):
        steps.append(step)
        for part in sided(model).values():
            distances += part.other_sides()[0][part.sides != part.own_sides(part.input)].tolist()
    return steps, distances


def step_from(case, model, before, number, batch, told=None):
    """The step with this number, counted from 0, from the state that the one before it left, in PyTorch."""
    model.load_state_dict(before.weights, strict=False)
    optimizer = case.optimizer(model.parameters())
    for name, part in model.named_parameters() if number > 0 else []:
        states = {key: state[name].to(part.dtype, copy=True) for key, state in before.states.items()}
        optimizer.state[part] = {"step": torch.tensor(float(number)), **states}
    tell(model, told)
    return advance(case, model, optimizer, *batch)


def tell(model, told):
    """Has its layers take these sides, by layer; with None, each the one where its input is."""
    for name, part in sided(model).items():
        part.told = told and told[name]


def sides_of(model):
    """The sides that its layers took last, by layer."""
    return {name: part.sides for name, part in sided(model).items()}


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
    """Attention does not depend on the keys' biases: their gradient is what rounding leaves of 0, and so are Adam's
    steps.
    """
    if not name.endswith("in_proj_bias"):
        return value
    queries, _, values = value.chunk(3)
    return torch.cat([queries, values])
