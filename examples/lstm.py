"""Forecast a time series by an LSTM, one step and fifty steps ahead.

    python -m dynagraph.torch examples/lstm.py [--steps 600] [--eager] [--device cuda] [--checkpoint lstm.pt] [--out lstm.png]

The series is the Mackey-Glass equation (1977), a chaotic model of blood cells: x' = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x.
The network reads 64 values and says the next one; then it goes on from what it has said.  `python examples/lstm.py` runs the same
text under PyTorch.
"""

from __future__ import annotations

import argparse

import common
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LENGTH, AHEAD = 64, 50


def mackey_glass(n: int, delay: int = 17, inner: int = 10) -> Tensor:
    """n values, one time unit apart, by Euler's method with steps of 1/inner."""
    past = [1.2] * (delay * inner + 1)
    for _ in range((n + 200) * inner):
        then = past[-1 - delay * inner]
        past.append(past[-1] + (0.2 * then / (1 + then**10) - 0.1 * past[-1]) / inner)
    values = torch.tensor(past[-n * inner :: inner])
    return (values - values.mean()) / values.std()


class Forecaster(nn.Module):
    """Values (N, T) to what follows each (N, T), and the state after the last."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        found, state = self.lstm(x.unsqueeze(2), state)
        return x + self.head(found).squeeze(2), state


def forecast(model: nn.Module, x: Tensor, ahead: int) -> Tensor:
    """So many values after x (N, T): each is read as if it had been measured."""
    with torch.no_grad():
        found, state = model(x)
        values = [found[:, -1:]]
        for _ in range(ahead - 1):
            found, state = model(values[-1], state)
            values.append(found)
    return torch.cat(values, 1)


def draw(plt, losses: list[float], known: Tensor, wanted: Tensor, found: Tensor):
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    left.plot(losses)
    left.set(xlabel="step", ylabel="mean squared error", yscale="log")
    length, ahead = len(known), len(wanted)
    right.plot(range(length), known.cpu().numpy(), color="gray", label="read")
    right.plot(range(length, length + ahead), wanted.cpu().numpy(), color="gray", linestyle=":", label="what followed")
    right.plot(range(length, length + ahead), found.cpu().numpy(), color="tab:blue", label="forecast")
    right.legend()
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "lstm", turns=600, quick=40), arguments)
    torch.manual_seed(0)
    series = mackey_glass(1000 if options.quick else 4000).to(options.device)
    train, test = series[: -len(series) // 5], series[-len(series) // 5 :]
    windows, tests = train.unfold(0, LENGTH + 1, 1), test.unfold(0, LENGTH + AHEAD, 7)
    model = Forecaster().to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        found, _ = model(x[:, :-1])
        loss = F.mse_loss(found, x[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def batch() -> Tensor:
        return windows[torch.randint(len(windows), (32,)).to(options.device)]

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer)
    for _ in run.turns():
        run.log(fast(batch()))

    known, wanted = tests[:, :LENGTH], tests[:, LENGTH:]
    found = forecast(model, known, AHEAD)
    errors = (found - wanted).pow(2).mean(0).sqrt()
    last = (known[:, -1:] - wanted).pow(2).mean(0).sqrt()
    print(f"{options.turns} steps in {sum(run.times):.1f} s: error of the next value {errors[0].item():.3f}, "
          f"of the {AHEAD}th {errors[-1].item():.3f}; if nothing changed {last[0].item():.3f}, {last[-1].item():.3f}")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, run.losses, known[0], wanted[0], found[0]))
    ratio = common.compare(options, step, fast, batch())
    return argparse.Namespace(losses=run.losses, errors=errors, unchanged=last, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
