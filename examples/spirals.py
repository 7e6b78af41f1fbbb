"""Learn two spirals with a small network written in PyTorch's tensors, without modules and optimizers.

    python -m dynagraph.torch examples/spirals.py [--steps 400] [--eager] [--device cuda] [--checkpoint spirals.pt]

It says `import torch`, and knows nothing of dynagraph; `python examples/spirals.py` runs it under PyTorch.
"""

from __future__ import annotations

import argparse
import math

import common
import torch
import torch.nn.functional as F
from torch import Tensor


def spirals(n: int) -> tuple[Tensor, Tensor]:
    """Points (2n, 2) of two arms that wind around each other, and which arm each is from."""
    turn = torch.linspace(0.25, 2.0, n) * math.pi
    arm = torch.stack([turn * torch.cos(turn), turn * torch.sin(turn)], dim=1) / (2 * math.pi)
    return torch.cat([arm, -arm]), torch.arange(2).repeat_interleave(n)


def parameters(sizes: list[int]) -> list[Tensor]:
    """A weight and a bias for each layer, drawn as `nn.Linear` draws them."""
    made = []
    for rows, columns in zip(sizes[1:], sizes[:-1]):
        bound = 1 / math.sqrt(columns)
        made += [torch.empty(rows, columns).uniform_(-bound, bound), torch.empty(rows).uniform_(-bound, bound)]
    return [p.requires_grad_() for p in made]


def scores(params: list[Tensor], x: Tensor) -> Tensor:
    """The network's outputs: tanh after every layer but the last."""
    layers = list(zip(params[::2], params[1::2]))
    for weight, bias in layers[:-1]:
        x = torch.tanh(F.linear(x, weight, bias))
    return F.linear(x, *layers[-1])


def loss_of(params: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(scores(params, x), y)


def adam(params: list[Tensor], means: list[Tensor], squares: list[Tensor], rate: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A step of Adam, in place; the loss before it.  rate: the learning rate with the corrections of the first steps."""
    loss = loss_of(params, x, y)
    gradients = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for p, g, m, v in zip(params, gradients, means, squares):
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.001)
            p -= rate * m / (v.sqrt() + 1e-8)
    return loss.detach()


class State:
    """Lists of tensors, as a part of a checkpoint."""

    def __init__(self, *lists: list[Tensor]) -> None:
        self.lists = lists

    def state_dict(self) -> dict:
        return {"lists": [[t.detach() for t in tensors] for tensors in self.lists]}

    def load_state_dict(self, saved: dict) -> None:
        with torch.no_grad():
            for mine, theirs in zip(self.lists, saved["lists"]):
                for tensor, value in zip(mine, theirs):
                    tensor.copy_(value)


def draw(plt, losses: list[float], x: Tensor, y: Tensor, arms: Tensor):
    """The losses, and which arm the network says a place is of."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(losses)
    left.set(xlabel="step", ylabel="loss", yscale="log")
    right.imshow(arms.cpu().numpy(), extent=(-1, 1, -1, 1), cmap="coolwarm", alpha=0.4)
    right.scatter(*x.cpu().numpy().T, c=y.cpu().numpy(), cmap="coolwarm", s=8)
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "spirals", turns=400, quick=100), arguments)
    torch.manual_seed(0)
    x, y = (t.to(options.device) for t in spirals(200))
    params = [p.detach().to(options.device).requires_grad_() for p in parameters([2, 32, 32, 2])]
    means, squares = ([torch.zeros_like(p, requires_grad=False) for p in params] for _ in range(2))
    fast = common.compiled(torch, adam, options)
    run = common.Run(options, torch, state=State(params, means, squares))
    for k in run.turns():
        rate = torch.tensor(0.01 * math.sqrt(1 - 0.999 ** (k + 1)) / (1 - 0.9 ** (k + 1)), device=options.device)
        run.log(fast(params, means, squares, rate, x, y))

    side = torch.linspace(-1, 1, 81, device=options.device)
    with torch.no_grad():
        accuracy = (scores(params, x).argmax(1) == y).float().mean().item()
        arms = scores(params, torch.cartesian_prod(-side, side).flip(1)).argmax(1).view(81, 81)
    print(f"{options.turns} steps in {sum(run.times):.1f} s: loss {run.losses[-1]:.4f}, {accuracy:.1%} of the points right")
    common.picture(options, lambda plt: draw(plt, run.losses, x, y, arms))
    ratio = common.compare(options, adam, fast, params, means, squares, rate, x, y)
    return argparse.Namespace(losses=run.losses, accuracy=accuracy, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
