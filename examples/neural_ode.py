"""Learn a differential equation from its solution: a neural ODE, through Runge-Kutta steps and by the adjoint.

    python -m dynagraph.torch examples/neural_ode.py [--steps 400] [--adjoint] [--eager] [--device cuda] [--checkpoint ode.pt]

A spiral x' = A x^3 was measured; a network f is to be found with x' = f(x) (Chen, Rubanova, Bettencourt and Duvenaud 2018).
Without `--adjoint` gradients go back through the steps of the fourth-order Runge-Kutta method, all of which are one compiled
program.  With it nothing is kept of the way: the equation is solved backward, beside that of the gradients.
`python examples/neural_ode.py` runs the same text under PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import common
import torch
from torch import Tensor, nn

STEP, PIECE = 0.05, 10  # time between two points; points that are foretold from one


def runge_kutta(f: Callable[[Tensor], Tensor], x: Tensor, h: float) -> Tensor:
    """x after the time h, of x' = f(x)."""
    k1 = f(x)
    k2 = f(x + h / 2 * k1)
    k3 = f(x + h / 2 * k2)
    k4 = f(x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def solve(f: Callable[[Tensor], Tensor], x: Tensor, points: int) -> Tensor:
    """The points (points, N, 2) that follow x (N, 2)."""
    found = []
    for _ in range(points):
        x = runge_kutta(f, x, STEP)
        found.append(x)
    return torch.stack(found)


def adjoint(model: nn.Module, x: Tensor, points: Tensor) -> Tensor:
    """The mean squared error of the points that follow x; gradients of the model's parameters are put into `grad`.

    Backward in time from the last point: x itself, the loss's gradient by x, and what the parameters' gradients have gathered.
    """
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]

    def f(joined: Tensor) -> Tensor:
        """x, a = dL/dx and dL/dp of all parameters side by side, and what their rates are."""
        place = joined[: 2 * x.numel()].view(2, *x.shape)
        with torch.enable_grad():
            at = place[0].detach().requires_grad_()
            rate = model(at)
            grads = torch.autograd.grad(rate, [at, *parameters], -place[1])
        return torch.cat([rate.detach().flatten(), *(g.flatten() for g in grads)])

    with torch.no_grad():
        found = solve(model, x, len(points))
        errors = found - points
        slopes = 2 * errors / errors.numel()
        gradient, state = torch.zeros_like(x), torch.zeros(sum(sizes), device=x.device)
        for k in range(len(points) - 1, -1, -1):
            joined = runge_kutta(f, torch.cat([found[k].flatten(), (gradient + slopes[k]).flatten(), state]), -STEP)
            gradient, state = joined[x.numel() : 2 * x.numel()].view_as(x), joined[2 * x.numel() :]
        for parameter, part in zip(parameters, state.split(sizes)):
            parameter.grad = part.view_as(parameter)
    return errors.pow(2).mean()


class Rate(nn.Module):
    """f: points (N, 2) to their speeds."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x**3)


def spiral(points: int) -> Tensor:
    """What was measured: (points, 2)."""
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    return solve(lambda x: x**3 @ matrix, torch.tensor([[2.0, 0.0]]), points)[:, 0]


def draw(plt, losses: list[float], wanted: Tensor, found: Tensor):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    left.plot(losses)
    left.set(xlabel="step", ylabel="mean squared error", yscale="log")
    for points, name, style in ((wanted, "measured", "k."), (found, "learned", "-")):
        right.plot(*points.cpu().numpy().T, style, label=name)
    right.legend()
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    made = common.parser(__doc__, "neural_ode", turns=400, quick=15)
    made.add_argument("--adjoint", action="store_true", help="solve backward for the gradients")
    options = common.parsed(made, arguments)
    torch.manual_seed(0)
    measured = spiral(400).to(options.device)
    model = Rate().to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: Tensor, points: Tensor) -> Tensor:
        optimizer.zero_grad()
        if options.adjoint:
            loss = adjoint(model, x, points)
        else:
            loss = (solve(model, x, PIECE) - points).pow(2).mean()
            loss.backward()
        optimizer.step()
        return loss.detach()

    def batch() -> tuple[Tensor, Tensor]:
        """Points (32, 2), and those that follow each (PIECE, 32, 2)."""
        starts = torch.randint(len(measured) - PIECE, (32,))
        places = starts + torch.arange(PIECE + 1).unsqueeze(1)
        points = measured[places.to(options.device)]
        return points[0], points[1:]

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer)
    for _ in run.turns():
        run.log(fast(*batch()))

    with torch.no_grad():
        found = solve(model, measured[:1], len(measured) - 1)[:, 0]
    error = (found - measured[1:]).pow(2).mean().sqrt().item()
    print(f"{options.turns} steps in {sum(run.times):.1f} s: loss {run.losses[-1]:.1e}; the whole way from its first point is "
          f"{error:.3f} off")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, run.losses, measured, found))
    ratio = common.compare(options, step, fast, *batch())
    return argparse.Namespace(losses=run.losses, error=error, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
