"""Every step of a training here on its own: PyTorch takes it from the state that the program had before it.

So what the program and PyTorch differ by is one step's rounding, unless that decides a side: of an element that is as
near as rounding to where the gradient of ReLU or of max pooling jumps. Which sides the program took is found out, and
PyTorch's f64 takes the same."""

from dataclasses import dataclass
from statistics import median

import torch
from parity_networks import sided
from parity_training import known_part, sides_of, step_from

# How many times PyTorch's error in f32 the program's error of a tensor may be. Both are norms of what two orders of
# adding round, equally large on average; of a tensor of ten elements one may be a few times the other.
LIMIT = 8
# An element may be on its other side where it is from there at most this many times the largest rounding error of
# PyTorch's f32 in its layer's input.
REACH = 4
# The second moment from which Adam's weights are compared, (1 − β₂)·(100 ε)²: of a gradient about as small as ε,
# rounding decides what part of the learning rate its element moves by.
LEAST_SQUARE = 1e-15


@dataclass
class Jump:
    """An element on the other side than where f64 has it."""

    layer: str
    index: int  # in the layer's flattened output
    distance: float  # of f64's value from the other side
    side: torch.Tensor


@dataclass
class Checked:
    """A step of the program, compared with PyTorch's in f64 on the same sides, as PyTorch's f32 is."""

    sides: dict  # those that the program took, by layer
    jumps: list
    their_jumps: int  # the number of those that PyTorch's f32 has
    ratios: dict  # the program's error divided by that of PyTorch's f32, by kind and name of a tensor

    @property
    def agrees(self):
        return all(ratio <= LIMIT for ratio in self.ratios.values())


def check_step(case, models, before, number, batches, step):
    """Compares the program's `step` with PyTorch's from the state `before` it; `models` and `batches` are f32's and
    f64's.
    """
    theirs, own = (step_from(case, model, before, number, batch) for model, batch in zip(models, batches))
    near = near_jumps(*models)
    their_sides, own_sides = map(sides_of, models)

    def told(sides):
        return step_from(case, models[1], before, number, batches[1], sides)

    rounding = errors(theirs, told(their_sides))

    def ratios(expected):
        floor = {key: 2**-24 * value.norm().item() for key, value in tensors(expected).items()}
        return {key: error / max(rounding[key], floor[key], 2**-126) for key, error in errors(step, expected).items()}

    def effect(other):
        differences = ((other.moments[name] - value) / value.norm() for name, value in own.moments.items())
        return torch.cat([difference.flatten() for difference in differences])

    their_jumps = sum(int((side != own_sides[layer]).sum()) for layer, side in their_sides.items())
    found = Checked(own_sides, [], their_jumps, ratios(own))
    if near and not found.agrees:
        # The difference is a sum of the jumps' effects, each one's once or not at all.
        effects = torch.stack([effect(told(with_jumps(own_sides, [jump]))) for jump in near], 1)
        shares = torch.linalg.lstsq(effects, effect(step)[:, None], driver="gelsd").solution.flatten()
        found.jumps = [jump for jump, share in zip(near, shares) if share > 0.5]
        found.sides = with_jumps(own_sides, found.jumps)
        found.ratios = ratios(told(found.sides))
    return found


def summary(checked):
    """What the steps of a training show, as text."""
    numbered = list(enumerate(checked, 1))
    ratios = [(ratio, *key, number) for number, step in numbered for key, ratio in step.ratios.items()]
    most, kind, name, number = max(ratios)
    lines = [
        f"Error of a step, divided by that of PyTorch's f32: {median(ratio for ratio, *_ in ratios):.2f} (median), "
        f"{most:.2f} (most, {kind} of `{name}`, step {number}).",
        f"Elements on another side than in f64 from the same state: {sum(len(step.jumps) for step in checked)}; "
        f"PyTorch's f32: {sum(step.their_jumps for step in checked)}.",
    ]
    for number, jump in [(number, jump) for number, step in numbered for jump in step.jumps]:
        element = f"element {jump.index} of `{jump.layer}`"
        lines.append(f"- step {number}: {element}, {jump.distance:.1e} from its other side")
    return "\n".join(lines)


def near_jumps(model, exact_model):
    """Every [`Jump`] that rounding may decide, of a step that both have just taken."""
    found, rounded = [], sided(model)
    for layer, part in sided(exact_model).items():
        reach = REACH * (rounded[layer].input - part.input).abs().max()
        distances, others = (tensor.flatten() for tensor in part.other_sides())
        near = (distances <= reach).nonzero().flatten().tolist()
        found += [Jump(layer, index, distances[index].item(), others[index]) for index in near]
    return found


def with_jumps(sides, jumps):
    changed = {layer: side.clone() for layer, side in sides.items()}
    for jump in jumps:
        changed[jump.layer].view(-1)[jump.index] = jump.side
    return changed


def tensors(step):
    """Weights and states of a step, as far as they are known."""
    kinds = {"weights": step.weights, **step.states}.items()
    return {(kind, name): known_part(name, value) for kind, values in kinds for name, value in values.items()}


def errors(step, expected):
    """The norm of each tensor's difference."""
    found, squares = tensors(step), expected.states.get("exp_avg_sq", {})
    norms = {}
    for (kind, name), value in tensors(expected).items():
        difference = found[kind, name] - value
        if kind == "weights" and name in squares:
            difference = difference[known_part(name, squares[name]) >= LEAST_SQUARE]
        norms[kind, name] = difference.norm().item()
    return norms
