"""Train a classifier of handwritten digits, written in plain NumPy, as it is and compiled.

    python examples/digits.py [--epochs 400] [--batch 64] [--eager] [--device cuda] [--checkpoint FILE] [--out digits.png]

The data are scikit-learn's 1797 real 8x8 images.  The network is 64-128-10 with ReLU and softmax, trained by Adam; its backward
pass is written by hand.  `forward` and `adam_step` are ordinary functions: `dg.compile` is all that dynagraph asks for.  Both runs
take the same steps from the same weights; the compiled one starts without any cached kernel, and its first call is counted.
With `--eager` there is the plain run alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # batches are too small for more, for NumPy as for dynagraph

import common
import numpy as np
from sklearn.datasets import load_digits

import dynagraph as dg
from dynagraph import torch  # saves the checkpoint

Weights = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
LEARNING_RATE = 0.2  # of gradient descent
RATE = 1e-3  # of Adam
DECAY = 1e-4  # L2


def forward(x, w1, b1, w2, b2):
    """Class scores (batch, 10) of images (batch, 64)."""
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden @ w2 + b2


def gradients(x, target, w1, b1, w2, b2):
    """The mean cross-entropy, and its gradients by the weights.

    x: (batch, 64), target: one-hot (batch, 10), all float32.
    """
    before = x @ w1 + b1
    hidden = np.maximum(before, 0)
    scores = hidden @ w2 + b2

    shifted = scores - scores.max(axis=1, keepdims=True)
    exps = np.exp(shifted)
    sums = exps.sum(axis=1, keepdims=True)
    loss = (np.log(sums) - (shifted * target).sum(axis=1, keepdims=True)).mean()

    d_scores = (exps / sums - target) / x.shape[0]
    d_hidden = np.where(before > 0, d_scores @ w2.T, 0)
    d_w2 = hidden.T @ d_scores + DECAY * w2
    d_w1 = x.T @ d_hidden + DECAY * w1
    return loss, (d_w1, d_hidden.sum(axis=0), d_w2, d_scores.sum(axis=0))


def train_step(x, target, w1, b1, w2, b2):
    """One step of gradient descent; gives the mean loss and the new weights."""
    loss, (d_w1, d_b1, d_w2, d_b2) = gradients(x, target, w1, b1, w2, b2)
    return (
        loss,
        w1 - LEARNING_RATE * d_w1,
        b1 - LEARNING_RATE * d_b1,
        w2 - LEARNING_RATE * d_w2,
        b2 - LEARNING_RATE * d_b2,
    )


def adam_step(x, target, rate, weights, means, squares):
    """One step of Adam, in place; gives the mean loss.  rate: the learning rate with the corrections of the first steps."""
    loss, found = gradients(x, target, *weights)
    for w, m, v, g in zip(weights, means, squares, found):
        m[:] = 0.9 * m + np.float32(0.1) * g
        v[:] = 0.999 * v + np.float32(0.001) * g * g
        w -= rate * m / (np.sqrt(v) + np.float32(1e-8))
    return loss


def initial_weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)

    def layer(fan_in: int, fan_out: int) -> np.ndarray:
        return (rng.standard_normal((fan_in, fan_out)) * np.sqrt(2 / fan_in)).astype(np.float32)

    return layer(64, 128), np.zeros(128, np.float32), layer(128, 10), np.zeros(10, np.float32)


def load(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, training labels, test images, test labels; every fifth image is a test image."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    test = np.arange(len(images)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def batches(images: np.ndarray, labels: np.ndarray, size: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled whole batches of images and one-hot labels."""
    order = np.random.default_rng(seed).permutation(len(images))
    one_hot = np.eye(10, dtype=np.float32)
    for start in range(0, len(images) - size + 1, size):
        chosen = order[start : start + size]
        yield images[chosen], one_hot[labels[chosen]]


class State:
    """Weights, and Adam's moments of them, as a part of a checkpoint."""

    def __init__(self) -> None:
        self.weights = initial_weights()
        self.means, self.squares = (tuple(map(np.zeros_like, self.weights)) for _ in range(2))

    def state_dict(self) -> dict:
        return {"weights": self.weights, "means": self.means, "squares": self.squares}

    def load_state_dict(self, saved: dict) -> None:
        self.weights, self.means, self.squares = (tuple(saved[name]) for name in ("weights", "means", "squares"))

    def arguments(self, t: int) -> tuple:
        """What the t-th step is given beside images and classes; the first one is 1."""
        rate = np.float32(RATE * np.sqrt(1 - 0.999**t) / (1 - 0.9**t))
        return rate, self.weights, self.means, self.squares


def train(name: str, step: Callable, options: argparse.Namespace) -> Any:
    """Train from the same weights, on the same batches in the same order; the run, with `first`, the seconds of its first step."""
    images, labels, *_ = load()
    state = State()
    file = options.checkpoint and f"{options.checkpoint}.{name.split()[0]}"  # each run has its own
    run = common.Run(argparse.Namespace(**{**vars(options), "name": name, "checkpoint": file}), torch, state=state)
    run.state, run.first, t = state, 0.0, run.done * (len(images) // options.batch)
    for epoch in run.turns():
        losses = []
        for x, target in batches(images, labels, options.batch, seed=epoch):
            t += 1
            start = time.perf_counter()
            losses.append(step(x, target, *state.arguments(t)))
            run.first = run.first or time.perf_counter() - start
        run.log(np.mean(losses))
    return run


def accuracy(model: Callable, weights: Weights, images: np.ndarray, labels: np.ndarray) -> float:
    return float((model(images, *weights).argmax(axis=1) == labels).mean())


def benchmark_step(size: int) -> tuple[Callable, Callable, tuple]:
    """The eager step, the compiled step, and arguments for both."""
    images, labels, *_ = load()
    x, target = next(batches(images, labels, size, seed=0))
    return train_step, dg.compile(train_step, fullgraph=True), (x, target, *initial_weights())


def draw(plt, runs: dict[str, Any], images: np.ndarray, labels: np.ndarray):
    """The losses over time, the times, and test images with what the network says; wrong ones in red."""
    figure = plt.figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3, 1.2))
    curves, bars = above.subplots(1, 2, width_ratios=(2, 1))
    for (name, run), colour in zip(runs.items(), ("tab:gray", "tab:blue")):
        seconds = np.cumsum(run.times)
        curves.plot(seconds, run.losses, color=colour, label=f"{name}: {seconds[-1]:.2f} s")
        curves.plot(seconds[-1], run.losses[-1], "o", color=colour)
        bars.bar(name, seconds[-1] - run.first, bottom=run.first, color=colour)
        bars.bar(name, run.first, color="tab:orange", label=f"first call: {run.first:.2f} s" if name == "compiled" else None)
    curves.set(xlabel="seconds of training, first call included", ylabel="mean loss of the epoch", yscale="log")
    curves.legend(title="the same steps")
    bars.set(ylabel="seconds")
    bars.legend()

    predictions = forward(images, *run.state.weights).argmax(axis=1)
    wrong, right = np.flatnonzero(predictions != labels), np.flatnonzero(predictions == labels)
    for axis, k in zip(below.subplots(1, 12), np.concatenate([wrong[:4], right])):
        axis.imshow(images[k].reshape(8, 8), cmap="gray_r")
        is_right = predictions[k] == labels[k]
        axis.set_title(f"{predictions[k]}" if is_right else f"{predictions[k]}, is {labels[k]}",
                       fontsize=9, color="black" if is_right else "red")  # fmt: skip
        axis.axis("off")
    below.suptitle(f"{len(right)} of {len(labels)} test images right", fontsize=10)
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    made = common.parser(__doc__, "digits", turns=400, quick=10, unit="epochs")
    made.add_argument("--batch", type=int, default=64)
    options = common.parsed(made, arguments)
    *_, test_images, test_labels = load()
    # no kernel is on disk yet: the first call is as it is on a new machine
    with tempfile.TemporaryDirectory() as empty, dg.config.override(cache_dir=empty):
        runs = {"plain NumPy": train("plain NumPy", adam_step, options)}
        step = adam_step
        if not options.eager:  # at any price: it is what the demo shows
            step = dg.compile(adam_step, fullgraph=True, mode="max", device=options.device)
            runs["compiled"] = train("compiled", step, options)
    steps = options.turns * (len(load()[0]) // options.batch)
    print(f"{steps} steps of Adam, batch {options.batch}, float32:")
    for name, run in runs.items():
        print(f"  {name:12} {sum(run.times):6.2f} s   first call {run.first:6.3f} s   loss {run.losses[-1]:.5f}   "
              f"{accuracy(forward, run.state.weights, test_images, test_labels):.1%} of test images right")  # fmt: skip
    if not options.eager:
        gained = sum(runs["plain NumPy"].times) / sum(runs["compiled"].times)
        print(f"compiled, first call included: {gained:.1f}x as fast" if gained > 1 else
              f"the first call did not pay within these {steps} steps: more of them are needed (--epochs)")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, runs, test_images, test_labels))
    x, target = next(batches(*load()[:2], options.batch, seed=0))
    ratio = common.compare(options, adam_step, step, x, target, *run.state.arguments(steps))
    return argparse.Namespace(losses=run.losses, plain=runs["plain NumPy"].losses, step=step, ratio=ratio,
                              accuracy=accuracy(forward, run.state.weights, test_images, test_labels))  # fmt: skip


if __name__ == "__main__":
    main()
