"""Solve a partial differential equation by a neural network that knows nothing but the equation.

    python -m dynagraph.torch examples/pinn.py [--steps 3000] [--eager] [--device cuda] [--checkpoint pinn.pt] [--out pinn.png]

The heat equation u_t = u_xx / 10 on 0 < x < 1, with u = sin(pi x) at first and 0 at both ends, has the solution
exp(-pi^2 t / 10) sin(pi x).  The network u(x, t) is trained to satisfy the equation where points happen to fall (Raissi, Perdikaris
and Karniadakis 2019): second derivatives are gradients of gradients, and the training's gradient goes through them.
`python examples/pinn.py` runs the same text under PyTorch.
"""

from __future__ import annotations

import argparse
import math

import common
import torch
from torch import Tensor, nn

DIFFUSION = 0.1


def exact(x: Tensor, t: Tensor) -> Tensor:
    return torch.exp(-DIFFUSION * math.pi**2 * t) * torch.sin(math.pi * x)


def residual(model: nn.Module, points: Tensor) -> Tensor:
    """u_t - u_xx / 10 at points (N, 2) of x and t."""
    points = points.detach().requires_grad_()
    (first,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
    return first[:, 1] - DIFFUSION * second[:, 0]


def draw(plt, losses: list[float], found: Tensor, wanted: Tensor):
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    axes[0].plot(losses)
    axes[0].set(xlabel="step", ylabel="loss", yscale="log")
    for axis, values, title in ((axes[1], found, "u(x, t)"), (axes[2], (found - wanted).abs(), "its error")):
        shown = axis.imshow(values.cpu().numpy(), origin="lower", extent=(0, 1, 0, 1), aspect="auto")
        axis.set(xlabel="t", ylabel="x", title=title)
        figure.colorbar(shown, ax=axis)
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "pinn", turns=3000, quick=40), arguments)
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(2, 32), nn.Tanh()]
    for _ in range(2):
        layers += [nn.Linear(32, 32), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(32, 1)).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)

    def step(inside: Tensor, start: Tensor, ends: Tensor) -> Tensor:
        optimizer.zero_grad()
        wanted = exact(start[:, :1], start[:, 1:])
        loss = residual(model, inside).pow(2).mean() + (model(start) - wanted).pow(2).mean() + model(ends).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def points() -> tuple[Tensor, Tensor, Tensor]:
        """Points in the middle, at t = 0, and at x = 0 and x = 1."""
        inside, start, ends = torch.rand(256, 2), torch.rand(64, 2), torch.rand(64, 2)
        start[:, 1] = 0
        ends[:, 0] = torch.arange(64) % 2
        return inside.to(options.device), start.to(options.device), ends.to(options.device)

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.turns():
        run.log(fast(*points()))
        scheduler.step()

    grid = torch.cartesian_prod(torch.linspace(0, 1, 51), torch.linspace(0, 1, 51)).to(options.device)
    with torch.no_grad():
        found, wanted = model(grid).view(51, 51), exact(grid[:, 0], grid[:, 1]).view(51, 51)
    error = (found - wanted).abs().max().item()
    print(f"{options.turns} steps in {sum(run.times):.1f} s: loss {run.losses[-1]:.1e}, the solution's greatest error {error:.4f}")
    common.picture(options, lambda plt: draw(plt, run.losses, found, wanted))
    ratio = common.compare(options, step, fast, *points())
    return argparse.Namespace(losses=run.losses, error=error, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
