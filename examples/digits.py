"""Train a classifier of handwritten digits, written in plain NumPy, eagerly and compiled.

    python examples/digits.py [--epochs 60] [--batch 64] [--out digits.png]

The data are scikit-learn's 1797 real 8x8 images.  The network is 64-128-10 with ReLU and softmax; its backward pass is
written by hand.  `forward` and `train_step` are ordinary functions: the decorator is all that dynagraph asks for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.datasets import load_digits

import dynagraph as dg

Weights = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
LEARNING_RATE = 0.2
DECAY = 1e-4  # L2


def forward(x, w1, b1, w2, b2):
    """Class scores (batch, 10) of images (batch, 64)."""
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden @ w2 + b2


def train_step(x, target, w1, b1, w2, b2):
    """One step of gradient descent on the cross-entropy; gives the mean loss and the new weights.

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
    return (
        loss,
        w1 - LEARNING_RATE * d_w1,
        b1 - LEARNING_RATE * d_hidden.sum(axis=0),
        w2 - LEARNING_RATE * d_w2,
        b2 - LEARNING_RATE * d_scores.sum(axis=0),
    )


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


def train(step: Callable, epochs: int, size: int, images: np.ndarray, labels: np.ndarray, report: bool) -> Weights:
    weights = initial_weights()
    for epoch in range(epochs):
        for x, target in batches(images, labels, size, seed=epoch):
            loss, *weights = step(x, target, *weights)
        if report and (epoch % 10 == 9 or epoch == 0):
            print(f"  epoch {epoch + 1:3d}   loss {float(loss):.4f}")
    return tuple(weights)


def accuracy(model: Callable, weights: Weights, images: np.ndarray, labels: np.ndarray) -> float:
    return float((model(images, *weights).argmax(axis=1) == labels).mean())


def benchmark_step(size: int) -> tuple[Callable, Callable, tuple]:
    """The eager step, the compiled step, and arguments for both."""
    images, labels, *_ = load()
    x, target = next(batches(images, labels, size, seed=0))
    return train_step, dg.compile(train_step, fullgraph=True), (x, target, *initial_weights())


def seconds_per_step(size: int, rounds: int = 31, calls: int = 20) -> tuple[float, float]:
    """Median seconds of the eager and the compiled step, measured in turn."""
    eager, compiled, arguments = benchmark_step(size)
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for step, times in zip((eager, compiled), samples):
            step(*arguments)
            start = time.perf_counter()
            for _ in range(calls):
                step(*arguments)
            times.append((time.perf_counter() - start) / calls)
    return statistics.median(samples[0]), statistics.median(samples[1])


def draw(path: str, model: Callable, weights: Weights, images: np.ndarray, labels: np.ndarray) -> None:
    """Test images with what the network says; wrong ones in red."""
    import matplotlib  # an optional dependency: only the picture needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    predictions = model(images, *weights).argmax(axis=1)
    wrong = np.flatnonzero(predictions != labels)
    right = np.flatnonzero(predictions == labels)
    shown = np.concatenate([wrong[:8], right])[:40]
    figure, axes = pyplot.subplots(5, 8, figsize=(8, 5.6))
    for axis, k in zip(axes.ravel(), shown):
        axis.imshow(images[k].reshape(8, 8), cmap="gray_r")
        colour = "black" if predictions[k] == labels[k] else "red"
        truth = "" if predictions[k] == labels[k] else f" (is {labels[k]})"
        axis.set_title(f"{predictions[k]}{truth}", fontsize=9, color=colour)
        axis.axis("off")
    figure.suptitle(f"{len(right)} of {len(labels)} test images right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", default="digits.png")
    options = parser.parse_args()
    images, labels, test_images, test_labels = load()
    compiled_forward, compiled_step = dg.compile(forward), dg.compile(train_step)

    print(f"training on {len(images)} images, batches of {options.batch}")
    start = time.perf_counter()
    weights = train(compiled_step, options.epochs, options.batch, images, labels, report=True)
    print(f"  compiled training took {time.perf_counter() - start:.2f} s, {compiled_step.stats}")

    start = time.perf_counter()
    eager_weights = train(train_step, options.epochs, options.batch, images, labels, report=False)
    print(f"  eager training took {time.perf_counter() - start:.2f} s")
    reached = accuracy(compiled_forward, weights, test_images, test_labels)
    print(
        f"test accuracy {reached:.2%} (eagerly trained: {accuracy(forward, eager_weights, test_images, test_labels):.2%})"
    )

    for size in (64, 512):
        eager, compiled = seconds_per_step(size)
        print(
            f"step of {size:3d}: eager {eager * 1e6:7.1f} us, compiled {compiled * 1e6:7.1f} us, {eager / compiled:.2f}x"
        )
    draw(options.out, compiled_forward, weights, test_images, test_labels)
    print(f"wrote {options.out}")
    if reached < 0.97:
        raise SystemExit("test accuracy is below 97 %")


if __name__ == "__main__":
    main()
