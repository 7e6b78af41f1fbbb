"""Fit a Gaussian process in plain NumPy: gradients of the likelihood by `dg.value_and_grad`, through a Cholesky factorization.

    python examples/gaussian_process.py [--steps 200] [--eager] [--checkpoint gp.pt] [--out gaussian_process.png]

Noisy measurements of a periodic curve with a trend.  The kernel is a sum of a smooth and a periodic one; its six parameters, on
which the answer depends, are those that make the measurements likeliest (Rasmussen and Williams 2006, algorithm 2.1).
"""

from __future__ import annotations

import argparse

import common
import numpy as np

import dynagraph as dg
from dynagraph import torch  # saves the checkpoint

START = {"smooth": 0.0, "length": 0.5, "wave": 0.0, "period": 0.55, "roughness": 0.0, "noise": -1.0}  # logarithms


def kernel(theta, x, y):
    """Covariances (N, M) of the curve at x (N,) and y (M,)."""
    apart = x[:, None] - y[None, :]
    smooth = np.exp(2 * theta["smooth"] - 0.5 * (apart / np.exp(theta["length"])) ** 2)
    turns = np.sin(np.pi * apart / np.exp(theta["period"])) / np.exp(theta["roughness"])
    return smooth + np.exp(2 * theta["wave"] - 2 * turns**2)


def measured_kernel(theta, x):
    """Covariances (N, N) of measurements at x (N,)."""
    return kernel(theta, x, x) + (np.exp(2 * theta["noise"]) + 1e-8) * np.eye(len(x))


def surprise(theta, x, y):
    """The negative logarithm of the likelihood of the measurements y at x, for each."""
    factor = np.linalg.cholesky(measured_kernel(theta, x))
    whitened = np.linalg.solve(factor, y)
    return (0.5 * (whitened**2).sum() + np.log(np.diagonal(factor)).sum()) / len(x) + 0.5 * np.log(2 * np.pi)


def step(theta, mean, square, t, x, y):
    """A step of Adam: the surprise, and the new parameters and their moments."""
    value, gradient = dg.value_and_grad(surprise)(theta, x, y)
    rate = 0.03 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    mean = {name: 0.9 * mean[name] + 0.1 * gradient[name] for name in theta}
    square = {name: 0.999 * square[name] + 0.001 * gradient[name] ** 2 for name in theta}
    theta = {name: theta[name] - rate * mean[name] / (np.sqrt(square[name]) + 1e-8) for name in theta}
    return value, theta, mean, square


def plain(*arguments):
    """A step of which nothing is compiled; else `value_and_grad` would be, once that pays."""
    with dg.disable():
        return step(*arguments)


def predict(theta, x, y, places):
    """Means and standard deviations of the curve at places, given the measurements."""
    factor = np.linalg.cholesky(measured_kernel(theta, x))
    across = np.linalg.solve(factor, kernel(theta, x, places))
    mean = across.T @ np.linalg.solve(factor, y)
    variance = np.exp(2 * theta["smooth"]) + np.exp(2 * theta["wave"]) - (across**2).sum(axis=0)
    return mean, np.sqrt(np.maximum(variance, 0))


def curve(x):
    return np.sin(2 * np.pi * x / 1.7) + 0.5 * np.sin(0.9 * x) + 0.1 * x


def measurements(n: int = 120):
    """Places from 0 to 8, where something was measured, and what."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 8, n))
    return x, curve(x) + 0.2 * random.standard_normal(n)


class State:
    """Parameters and moments, as a part of a checkpoint."""

    def __init__(self) -> None:
        zeros = {name: np.float64(0) for name in START}
        self.theta, self.mean, self.square = {name: np.float64(v) for name, v in START.items()}, dict(zeros), dict(zeros)

    def state_dict(self) -> dict:
        return {"theta": self.theta, "mean": self.mean, "square": self.square}

    def load_state_dict(self, saved: dict) -> None:
        self.theta, self.mean, self.square = saved["theta"], saved["mean"], saved["square"]


def draw(plt, losses: list[float], x, y, places, mean, deviation):
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained", width_ratios=(1, 2))
    left.plot(losses)
    left.set(xlabel="step", ylabel="surprise per measurement, nats")
    right.plot(x, y, "k.", label="measured")
    right.plot(places, mean, label="mean")
    right.fill_between(places, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25, label="two standard deviations")
    right.plot(places, curve(places), "k:", label="the truth")
    right.legend()
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "gaussian_process", turns=200, quick=60), arguments)
    x, y = measurements()
    fast = plain if options.eager else dg.compile(step, mode="max")
    state = State()
    run = common.Run(options, torch, state=state)
    for k in run.turns():
        loss, state.theta, state.mean, state.square = fast(state.theta, state.mean, state.square, np.float64(k + 1), x, y)
        run.log(loss)

    places = np.linspace(0, 10, 400)
    mean, deviation = predict(state.theta, x, y, places)
    error = np.sqrt(np.mean((mean - curve(places))[places < 8] ** 2))
    found = ", ".join(f"{name} {np.exp(value):.2f}" for name, value in state.theta.items())
    print(f"{options.turns} steps in {sum(run.times):.1f} s: surprise {run.losses[0]:.3f} at first, then {run.losses[-1]:.3f}\n"
          f"{found}\nthe mean is {error:.3f} off where something was measured")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, run.losses, x, y, places, mean, deviation))
    ratio = common.compare(options, plain, fast, state.theta, state.mean, state.square, np.float64(1), x, y)
    return argparse.Namespace(losses=run.losses, error=error, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
