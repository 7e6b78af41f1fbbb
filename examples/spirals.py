"""Learn two spirals with a small network written in PyTorch's tensors: the same script under either library.

    python -m dynagraph.torch examples/spirals.py [--steps 400] [--compile]

It says `import torch`, and knows nothing of dynagraph; `python examples/spirals.py` runs it under PyTorch.
"""

from __future__ import annotations

import argparse
import math
import time

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--compile", action="store_true", help="compile the loss with torch.compile")
    options = parser.parse_args()

    torch.manual_seed(0)
    x, y = spirals(200)
    params = parameters([2, 32, 32, 2])
    loss_function = torch.compile(loss_of) if options.compile else loss_of
    means, squares = ([torch.zeros_like(p) for p in params] for _ in range(2))

    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        loss = loss_function(params, x, y)
        gradients = torch.autograd.grad(loss, params)
        with torch.no_grad():  # Adam
            for p, g, m, v in zip(params, gradients, means, squares):
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.001)
                p -= 0.01 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        if step % max(1, options.steps // 4) == 0:
            right = (scores(params, x).argmax(1) == y).float().mean()
            print(f"step {step:4d}   loss {loss.item():.4f}   accuracy {right.item():.1%}")
    print(f"{options.steps} steps in {time.perf_counter() - began:.1f} s with torch {torch.__version__}")

    grid = torch.linspace(-1, 1, 41)
    places = torch.cartesian_prod(torch.linspace(1, -1, 21), grid).flip(1)
    arms = scores(params, places).detach().argmax(1).view(21, 41)
    print("\n".join("".join(".#"[arm] for arm in row) for row in arms.tolist()))


if __name__ == "__main__":
    main()
